/**
 * Refusals as E2B's clients read them: `{"code": <status>, "message": "…"}`, and what each error of the API
 * is for them. Pure.
 */
import { FlotillaError } from "@flotilla/sdk";

export class Refused extends Error {
  readonly status: number;
  /** Headers of the answer, such as `retry-after`. */
  readonly headers: Readonly<Record<string, string>>;

  constructor(status: number, message: string, headers: Readonly<Record<string, string>> = {}) {
    super(message);
    this.status = status;
    this.headers = headers;
  }

  get body(): { readonly code: number; readonly message: string } {
    return { code: this.status, message: this.message };
  }
}

/** What is not served: it is named, and answered at once. */
export const notImplemented = (what: string): Refused => new Refused(501, `${what} is not implemented by Flotilla`);

export const notFound = (sandboxId: string): Refused => new Refused(404, `Sandbox "${sandboxId}" doesn't exist`);

/** The statuses that differ from the API's own. */
const STATUSES: Readonly<Record<string, number>> = {
  invalid_body: 400,
  payment_required: 403,
  quota_exceeded: 429,
  no_capacity: 503,
  image_not_found: 404,
  image_refused: 403,
  image_not_allowed: 403,
  image_wrong_platform: 400,
  image_not_cached: 404,
  start_failed: 503,
};

/** undefined: it is a bug of ours. */
export function refusedBy(error: unknown): Refused | undefined {
  if (error instanceof Refused) return error;
  if (!(error instanceof FlotillaError)) return undefined;
  const status = STATUSES[error.code] ?? (error.status === 0 ? 503 : error.status);
  return new Refused(status, error.text);
}

/** No node has the image of the machine. */
export const isImageMissing = (error: unknown): boolean =>
  error instanceof FlotillaError && error.code === "image_not_found";

/** What the edge of E2B answers for a sandbox that is gone or paused. */
export const goneBody = (sandboxId: string) => ({ sandboxId, message: "The sandbox was not found", code: 502 });

/** What it answers for a port on which nothing listens. */
export const closedBody = (sandboxId: string, port: number) => ({
  ...{ sandboxId, message: "The sandbox is running but port is not open", port, code: 502 },
});

/** The same for browsers. */
export const closedPage = (sandboxId: string, port: number): string =>
  `<!doctype html><html><head><title>Closed Port Error</title></head><body><h1>Nothing listens on port ${port}</h1>` +
  `<p>The sandbox ${sandboxId} runs, and none of its programs listens on this port.</p></body></html>`;

/**
 * Callers that misbehave with the body of a request: one is slow, one sends too much, one never ends, one
 * disappears.
 */
import assert from "node:assert/strict";
import { until } from "./until.ts";
import { head, type Wire, wire } from "./wire.ts";

const DEADLINE_MS = 60_000;
export const PIECE = Buffer.alloc(64 * 1024, 0x20);
export const CHUNK = Buffer.concat([Buffer.from("10000\r\n"), PIECE, Buffer.from("\r\n")]);

interface Caller {
  readonly name: string;
  readonly headers: Readonly<Record<string, string>>;
  /** What it sends first. */
  readonly first: string;
  /** What it sends again and again, as fast as the server reads. */
  readonly more: Buffer | null;
}

const SLOW: Caller = { name: "slow", headers: { "content-length": "500000" }, first: "{", more: null };
const CALLERS: readonly Caller[] = [
  SLOW,
  { name: "huge", headers: { "content-length": String(2 ** 40) }, first: "{", more: PIECE },
  { name: "endless", headers: { "transfer-encoding": "chunked" }, first: "1\r\n{\r\n", more: CHUNK },
];

/** A request whose body misbehaves. */
export interface RudeRequest {
  /** Name in messages of a failed test. */
  readonly what: string;
  /** `http://…`, `https://…` or `unix:/path`. */
  readonly url: string;
  readonly method: string;
  readonly path: string;
  readonly key: string | null;
  readonly headers?: Readonly<Record<string, string>>;
}

/**
 * Makes each request as each caller and waits until every connection is closed. No answer has status 500.
 * `look` is called often.
 */
export async function callRudely(requests: readonly RudeRequest[], look: () => void): Promise<void> {
  const open: { readonly what: string; readonly one: Wire; readonly more: Buffer | null }[] = [];
  for (const request of requests) {
    const vanishing = await begin(request, SLOW);
    for (const caller of CALLERS) {
      const what = `${request.what} by a ${caller.name} client`;
      open.push({ what, one: await begin(request, caller), more: caller.more });
    }
    vanishing.socket.destroy();
  }
  const left = (): string[] => open.filter(({ one }) => !one.isClosed()).map(({ what }) => what);
  const areCut = (): boolean => {
    for (const { one, more } of open)
      if (more !== null && !one.isClosed() && !one.socket.writableNeedDrain) one.send(more);
    look();
    return left().length === 0;
  };
  const wait = { what: "every connection to be closed", deadlineMs: DEADLINE_MS, everyMs: 25 };
  await until(areCut, wait).catch((error: unknown) => {
    throw new Error(`still open: ${left().join(", ")}`, { cause: error });
  });
  for (const { what, one } of open) {
    const answer = one.received();
    if (answer !== "") assert.match(answer, /^HTTP\/1\.1 (?!500)[2-5]\d\d /, what);
  }
}

async function begin({ url, method, path, key, headers }: RudeRequest, caller: Caller): Promise<Wire> {
  const one = await wire(url, { isDeaf: true });
  one.send(head(method, path, key, { ...caller.headers, "content-type": "application/json", ...headers }));
  one.send(caller.first);
  return one;
}

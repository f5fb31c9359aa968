/**
 * What the ingress answers in its own process besides requests for machines: probes and metrics. It has no
 * API: any other path is unknown, which only callers with a key learn.
 */
import { Refusal } from "@flotilla/contract/errors";
import { grants } from "@flotilla/contract/scopes";
import { authenticateKey, bearerOf } from "../auth/authenticate.ts";
import type { KeyCache, KnownKey } from "../auth/key-cache.ts";
import { LastReaders } from "../auth/last-readers.ts";
import type { LastUsed } from "../auth/last-used.ts";
import type { Metrics } from "../status/metrics.ts";
import type { Outgoing } from "../http/answer.ts";
import {
  after,
  answerAlways,
  checkHead,
  finish,
  guardOf,
  type OpenRequest,
  openRequest,
  refuseSlowly,
  type RequestParts,
} from "../http/request.ts";
import type { HttpService } from "../http/server.ts";

export interface ProbeParts extends RequestParts {
  readonly keys: KeyCache;
  readonly lastUsed: LastUsed;
  readonly metrics: Metrics;
  readonly isDatabaseUp: () => boolean;
  /** Rejects with a Refusal that says why it cannot serve. */
  readonly checkReady: () => Promise<void>;
}

/** The names of what is served, in the log and in metrics. */
const NAMES: Readonly<Record<string, string>> = {
  "/livez": "getLiveness",
  "/readyz": "getReadiness",
  "/metrics": "getMetrics",
};
const NOTHING: Outgoing = { status: 200, headers: {}, body: "" };

export function probeService(parts: ProbeParts): HttpService {
  const readers = new LastReaders();
  return {
    serve(incoming) {
      const request = openRequest(parts, incoming);
      const name = NAMES[incoming.url.replace(/\?.*/s, "")] ?? "none";
      const answering = answerAlways(parts, request, async () => {
        checkHead(request.message);
        return name === "none" || name === "getMetrics"
          ? await answerWithKey(parts, request, { readers, name })
          : await answerProbe(parts, request, name);
      });
      return after(answering, (outgoing) => finish(parts, request, { outgoing, name }));
    },
    passesUpgrade: () => false,
  };
}

async function answerProbe({ checkReady }: ProbeParts, { message }: OpenRequest, name: string): Promise<Outgoing> {
  checkReads(message.method);
  if (name === "getReadiness") await checkReady();
  return NOTHING;
}

function checkReads(method: string | undefined): void {
  if (method === "GET" || method === "HEAD") return;
  const allow = "GET, HEAD";
  throw new Refusal("method_not_allowed", `${method} is not served on this path; it serves ${allow}`, {
    headers: { allow },
  });
}

interface Keyed {
  readonly readers: LastReaders;
  readonly name: string;
}

async function answerWithKey(parts: ProbeParts, request: OpenRequest, { readers, name }: Keyed): Promise<Outgoing> {
  const { context, metrics } = parts;
  const { message, headers, presence, startedAt: now } = request;
  const bearer = bearerOf(message.headers.authorization);
  const authenticate = (): KnownKey | Promise<KnownKey> => {
    const key = authenticateKey(parts, bearer, guardOf(parts, request));
    return name === "getMetrics" ? readers.orLast(bearer ?? "", key, () => context.clock.now()) : key;
  };
  const key = await refuseSlowly(parts, request, authenticate);
  request.key = key;
  await parts.admission.takeRequest(key, "api", { headers, now, presence });
  if (name === "none") throw new Refusal("not_found", "no such path", { resource: { kind: "path" } });
  checkReads(message.method);
  if (!grants(key.scopes, "admin")) throw new Refusal("missing_scope", "missing scope: admin");
  metrics.setDatabaseUp(parts.isDatabaseUp());
  return { ...NOTHING, headers: { "content-type": metrics.contentType }, body: await metrics.text() };
}

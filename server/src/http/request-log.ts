/**
 * One line of the log for each answered request; at level `debug` for routine ones that succeeded.
 */
import type { IncomingMessage } from "node:http";
import type { Log } from "@flotilla/base/log";
import type { NodeCaller } from "../auth/caller.ts";
import type { KnownKey } from "../auth/key-cache.ts";

/** Asked every few seconds by nodes and by probes: at level `info` they would hide everything else. */
const ROUTINE_NAMES = new Set(["heartbeatNode", "getHealth", "getReadiness", "getLiveness", "getMetrics"]);
/** Max length of a path in the log. */
const PATH_CHARACTERS_MAX = 512;

export interface Answered {
  readonly requestId: string;
  /** Name of the endpoint, or a word for what is none. */
  readonly name: string;
  readonly message: IncomingMessage;
  readonly url: string;
  readonly status: number;
  readonly elapsedMs: number;
  readonly key: KnownKey | undefined;
  readonly node: NodeCaller | undefined;
  /** Further fields. */
  readonly details: Readonly<Record<string, string | number>>;
}

export function logAnswered(log: Log, answered: Answered): void {
  const { requestId, name, message, url, status, elapsedMs, key, node, details } = answered;
  const who = key === undefined ? { nodeId: node?.nodeId } : { keyId: key.keyId, tenantId: key.tenantId };
  // The query is left out: it may hold an access token.
  const at = url.indexOf("?");
  const path = url.slice(0, Math.min(at < 0 ? PATH_CHARACTERS_MAX : at, PATH_CHARACTERS_MAX));
  const ms = Math.round(elapsedMs * 100) / 100;
  const fields = { requestId, name, method: message.method, path, status, ms, ...who, ...details };
  if (status >= 500 && status !== 501) log.warn(fields, "request");
  else if (status < 400 && ROUTINE_NAMES.has(name)) log.debug(fields, "request");
  else log.info(fields, "request");
}

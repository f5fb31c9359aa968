/**
 * A request on its way through the steps of handle.ts, and what those steps work with.
 */
import type { Endpoint } from "@flotilla/contract/endpoint";
import type { AccessWatch } from "../auth/access-watch.ts";
import type { ConnectTokenAuthenticator, NodeAuthenticator } from "../auth/authenticate.ts";
import type { NodeCaller } from "../auth/caller.ts";
import type { KeyCache, KnownKey } from "../auth/key-cache.ts";
import type { LastUsed } from "../auth/last-used.ts";
import type { Context } from "../context.ts";
import type { Admission } from "../fairness/admission.ts";
import type { AuditSink } from "./audit-sink.ts";
import type { FairSemaphore } from "../fairness/semaphore.ts";
import type { BodyShare } from "../fairness/body-share.ts";
import type { CallerAddress } from "../fairness/caller-address.ts";
import type { HeaderList, RawRequest } from "../http/answer.ts";
import type { IdempotencyUse } from "./idempotency-use.ts";
import type { Ingress } from "./ingress.ts";
import type { LargeJson } from "./large-json.ts";
import type { LastReaders } from "./last-readers.ts";
import type { RequestIds } from "../http/request-id.ts";
import type { Find, Found } from "./router.ts";
import type { Incoming } from "../http/server.ts";

/** undefined: there is nothing to look for. */
export type FindTarget = (
  endpoint: Endpoint,
  params: Readonly<Record<string, string>>,
  tenantId: string,
) => Promise<void> | undefined;

export interface HandleParts {
  readonly context: Context;
  readonly keys: KeyCache;
  readonly access: AccessWatch;
  readonly lastUsed: LastUsed;
  readonly nodes: NodeAuthenticator;
  readonly connectTokens: ConnectTokenAuthenticator;
  readonly ingress: Ingress;
  readonly admission: Admission;
  readonly find: Find;
  readonly largeJson: LargeJson;
  readonly semaphore: FairSemaphore;
  readonly readers: LastReaders;
  readonly idempotency: IdempotencyUse;
  /** Throws a Refusal when what the path names does not exist or is not the tenant's; for requests with large bodies. */
  readonly findTarget: FindTarget;
  readonly audit: AuditSink;
  readonly requestIds: RequestIds;
  /** Replaces PROCESSING_MS. For tests. */
  readonly processingMs?: number | undefined;
  /** Called once per answered request. */
  readonly observe: (seen: { readonly name: string; readonly status: number; readonly seconds: number }) => void;
}

/** What the steps learn about a request, for the log and for the headers of the answer. */
export interface Exchange extends Incoming, Found {
  /** By the monotonic clock. */
  readonly startedAt: number;
  readonly requestId: string;
  /** The address of the connection; undefined: it is a UNIX socket's. Kept: a body that was passed on takes the socket along. */
  readonly peer: string | undefined;
  readonly headers: HeaderList;
  /** Whether it goes to a machine, past everything that is the API's. */
  readonly isForMachine: boolean;
  bearer: string | undefined;
  key: KnownKey | undefined;
  node: NodeCaller | undefined;
  /** What its body holds of the memory, until its end. */
  share: BodyShare | undefined;
  /** Ends its place among the open requests. */
  close: (() => void) | undefined;
  /** Ends its place among the requests at work. */
  endWork: (() => void) | undefined;
}

/**
 * Continues with the value: at once when it is known, later when it is promised. Most requests are answered from memory,
 * and a promise per step would cost them as much as the rest of the way.
 */
export function after<T, U>(value: T | Promise<T>, proceed: (value: T) => U | Promise<U>): U | Promise<U> {
  return value instanceof Promise ? value.then(proceed) : proceed(value);
}

/** The parameters of a URL. */
export const searchOf = (url: string): URLSearchParams => {
  const at = url.indexOf("?");
  return new URLSearchParams(at < 0 ? "" : url.slice(at + 1));
};

export const callerOf = ({ admission }: HandleParts, { message, peer }: Exchange): CallerAddress =>
  admission.proxies.callerOf(peer, textOf(message.headers["x-forwarded-for"]));

export const rawOf = ({ admission }: HandleParts, { message, url, upgrade, peer }: Exchange): RawRequest => ({
  message,
  url,
  upgrade,
  isFromProxy: peer === undefined || admission.proxies.has(peer),
});

const textOf = (header: string | string[] | undefined): string | undefined =>
  Array.isArray(header) ? header.join(",") : header;

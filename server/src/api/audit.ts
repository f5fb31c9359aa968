/**
 * Which calls go to the audit log, and what is recorded of them.
 *
 * Always:
 * - A call that changes something is answered with 2xx only after it was recorded. If that fails it is
 *   answered with 503, although the change was made. A server that dies in between leaves the change without
 *   a row and without an answer.
 * - A call that sent something to a machine (a command, a terminal, a file) has its own row however it ends:
 *   its caller disconnects, its right ends, its machine is deleted, its node does not answer. If it is not
 *   answered within a moment, a row with SENT says so, and the answer has another one. A server that dies in
 *   the middle leaves the first.
 * - Commands, terminals, refused calls and failed ones are recorded in the background: a crash loses those of
 *   the last moment.
 * - A node's registration is recorded like a change, in the chain of the first tenant; its reports are not
 *   recorded.
 * - Nothing is recorded of bodies, queries and paths of files; ids that contain a credential are hidden.
 */
import { Readable } from "node:stream";
import type { AuditRecord } from "@flotilla/contract/audit";
import { type ErrorCode, Refusal } from "@flotilla/contract/errors";
import type { Caller } from "../auth/caller.ts";
import { holdsOwnCredential } from "../auth/keys.ts";
import type { Outgoing } from "../http/answer.ts";
import { callerOf } from "../http/request.ts";
import type { Exchange, HandleParts } from "./exchange.ts";
import { refusal } from "../http/failure.ts";
import { type Route, routeOf } from "./route-table.ts";

const WORTH_KNOWING: readonly string[] = ["expired_key", "missing_scope", "payment_required"] satisfies ErrorCode[];
const RESOURCE_CHARACTERS_MAX = 128;
const NAMED_BODY_BYTES_MAX = 64 * 1024;
/** The status of what was sent to a machine and is not answered. */
const SENT: Outgoing = { status: 102, headers: {}, body: "" };
const SAFE_METHODS = new Set(["GET", "HEAD", "OPTIONS"]);

/** The answer to send: a promise only if the call has to be recorded first. */
export function audited(parts: HandleParts, exchange: Exchange, outgoing: Outgoing): Outgoing | Promise<Outgoing> {
  const { sent } = exchange;
  const errorCode = outgoing.headers["x-error-code"] ?? null;
  const call = recordedCall(parts, exchange, errorCode);
  if (call === undefined || !(sent !== undefined || isRecorded(exchange, call.route, outgoing))) return outgoing;
  const { tenantId } = call.key;
  const record = recordOf(parts, exchange, { ...call, outgoing, errorCode });
  const hasSucceeded = outgoing.status < 400;
  if (sent !== undefined && (!hasSucceeded || isInside(call.route))) {
    const recording = sent.answered(record);
    return recording === undefined ? outgoing : answerWhenRecorded(parts, exchange, { outgoing, recording });
  }
  if (!hasSucceeded) {
    // It may have had an effect on what it named, which must show.
    parts.audit.note(tenantId, record, exchange.hasBegun ? "sameNamed" : "whateverNamed");
    return outgoing;
  }
  sent?.withdraw();
  return answerWhenRecorded(parts, exchange, { outgoing, recording: parts.audit.record(tenantId, record) });
}

/** Something is about to be sent to a machine for the call. Calls after the first have no effect. */
export function recordSent(parts: HandleParts, exchange: Exchange): void {
  if (exchange.sent !== undefined) return;
  const call = recordedCall(parts, exchange, null);
  if (call === undefined || !isChange(call.route)) return;
  const record = recordOf(parts, exchange, { ...call, outgoing: SENT, errorCode: null });
  exchange.sent = parts.audit.sent(call.key.tenantId, record);
}

interface RecordedCall {
  readonly route: Route;
  readonly key: Actor;
}

/** undefined: there is no such endpoint, or no one to name. */
function recordedCall(parts: HandleParts, exchange: Exchange, errorCode: string | null): RecordedCall | undefined {
  const { entry, message } = exchange;
  const route = entry !== undefined && "routes" in entry ? routeOf(entry, message.method) : undefined;
  const key = route && (keyOf(parts, exchange, errorCode) ?? nodeActor(exchange, route));
  return route && key && { route, key };
}

const isChange = ({ endpoint }: Route): boolean => !SAFE_METHODS.has(endpoint.method) || endpoint.isUpgrade === true;

function isRecorded({ hasBegun, presence }: Exchange, route: Route, { status, headers }: Outgoing): boolean {
  const errorCode = headers["x-error-code"];
  if (errorCode !== undefined && WORTH_KNOWING.includes(errorCode)) return true;
  const hasFailed = status >= 500 && status !== 501;
  return isChange(route) && (status < 400 || hasFailed || (hasBegun && presence.lost !== undefined));
}

async function answerWhenRecorded(
  { context }: HandleParts,
  exchange: Exchange,
  { outgoing, recording }: { readonly outgoing: Outgoing; readonly recording: Promise<void> },
): Promise<Outgoing> {
  try {
    await recording;
    return outgoing;
  } catch (error) {
    context.log.error({ requestId: exchange.requestId, error }, "a call was not recorded in the audit log");
    if (outgoing.status >= 400) return outgoing;
    if (outgoing.body instanceof Readable) outgoing.body.destroy();
    const text =
      "the change was made, but not recorded in the audit log, because the database does not answer; check it in a moment";
    return refusal(context.log, exchange, new Refusal("unavailable", text, { headers: { "retry-after": "1" } }));
  }
}

type Actor = Pick<Caller, "keyId" | "scopes"> & { readonly tenantId: string | null };

/** The actor of a node's registration. */
function nodeActor({ node }: Exchange, { name }: Route): Actor | undefined {
  if (node === undefined || name !== "registerNode") return undefined;
  const keyId = node.nodeId === null ? `join-token:${node.joinTokenPrefix ?? "unknown"}` : `node:${node.nodeId}`;
  return { keyId, scopes: [], tenantId: null };
}

/** An expired key is known, but its call has no caller. */
function keyOf({ keys }: HandleParts, { key, bearer }: Exchange, errorCode: string | null): Actor | undefined {
  if (key !== undefined || errorCode !== "expired_key" || bearer === undefined) return key;
  const known = keys.find(bearer, () => Promise.resolve(undefined));
  return known instanceof Promise ? undefined : known;
}

/** Commands and terminals: their path has no query, and stays without one. */
const isInside = ({ endpoint: { access } }: Route): boolean =>
  typeof access !== "string" && access.includes("machine:exec");

interface Answered extends RecordedCall {
  readonly outgoing: Outgoing;
  readonly errorCode: string | null;
}

function recordOf(parts: HandleParts, exchange: Exchange, { route, key, outgoing, errorCode }: Answered): AuditRecord {
  return {
    at: new Date(parts.context.clock.now()).toISOString(),
    requestId: hidden(exchange.requestId),
    type: `${route.endpoint.family}.${route.name}`,
    resource: resourceOf(exchange, route, outgoing),
    keyId: key.keyId,
    scopes: [...key.scopes],
    address: callerOf(parts, exchange).address,
    status: outgoing.status,
    errorCode,
  };
}

/** The ids in the path, or the id of what was made. */
function resourceOf({ params }: Exchange, { segmentNames }: Route, { status, body }: Outgoing): string | null {
  const named = segmentNames.map((name) => params[name] ?? "").join("/");
  if (named !== "") return hidden(named);
  if (status >= 400 || typeof body !== "string" || body.length > NAMED_BODY_BYTES_MAX || !body.startsWith("{"))
    return null;
  const { id } = JSON.parse(body) as { id?: unknown };
  return typeof id === "string" ? hidden(id) : null;
}

function hidden(text: string): string {
  if (holdsOwnCredential(text) || text.includes("whsec_")) return "(hidden)";
  // The cut may leave half of a character, which PostgreSQL refuses.
  return text.slice(0, RESOURCE_CHARACTERS_MAX).replaceAll("\u0000", "").toWellFormed();
}

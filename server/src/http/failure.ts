/**
 * From whatever a step or a handler threw to the refusal that its caller gets.
 *
 * Always: an error that is not a Refusal, nor of the database or of an amount beyond 2^53, is a fault of
 * ours: the caller gets a request id, the log gets the message.
 */
import type { IncomingMessage } from "node:http";
import type { Log } from "@flotilla/base/log";
import { InexactAmount } from "@flotilla/base/money";
import { Refusal } from "@flotilla/contract/errors";
import type { NodeCaller } from "../auth/caller.ts";
import { DatabaseFull, DatabaseUnavailable } from "../db/database.ts";
import { isOutOfRange } from "../db/out-of-range.ts";
import { CallerGone } from "./body.ts";
import type { Outgoing } from "./answer.ts";
import type { CallerPresence } from "./caller-presence.ts";
import { errorAnswer } from "./refuse.ts";

/** A request that failed. */
export interface Failed {
  readonly message: IncomingMessage;
  readonly presence: CallerPresence;
  readonly requestId: string;
  /** The node that called; undefined: another caller. */
  readonly node: NodeCaller | undefined;
}

/** The answer for an error. */
export function refusal(log: Log, failed: Failed, error: unknown): Outgoing {
  const found = asRefusal(log, failed, error);
  const { requestId, node } = failed;
  const said = { requestId, nodeId: node?.nodeId, code: found.code, reason: found.message };
  if (node !== undefined) log.warn(said, "a call of a node was refused");
  return errorAnswer(found, failed.message.headers.accept, requestId);
}

/** Whether it stores nothing new: on a full disk it may use what is kept for that. */
export const isReadOrDelete = ({ method }: IncomingMessage): boolean =>
  method === "GET" || method === "HEAD" || method === "DELETE";

const DISK_FULL =
  "the server's disk is full, so nothing new can be stored; delete machines or images, or ask its operator for room, then try again";
const RESERVE_USED =
  "the server's disk is full, and what is kept free on it for reads and deletes is used up; ask its operator for room, then try again";

function asRefusal(log: Log, { requestId, presence, message }: Failed, error: unknown): Refusal {
  // The caller's right has ended, whatever failed because of that. The rest of a body is not awaited.
  if (presence.lost !== undefined)
    return new Refusal(presence.lost.code, presence.lost.message, { headers: { connection: "close" } });
  if (error instanceof Refusal) return error;
  if (error instanceof DatabaseFull) {
    log.error({ requestId, reason: error.message }, "a request failed: the disk is full");
    const text = isReadOrDelete(message) ? RESERVE_USED : DISK_FULL;
    return new Refusal("unavailable", text, { headers: { "retry-after": "10" } });
  }
  if (error instanceof DatabaseUnavailable) {
    log.warn({ requestId, reason: error.message }, "a request failed: the database is unavailable");
    return new Refusal("unavailable", "the database does not answer now; try again in a moment", {
      headers: { "retry-after": "1" },
    });
  }
  if (error instanceof InexactAmount || isOutOfRange(error))
    return new Refusal(
      "conflict",
      `an amount in the answer is too large: ${error.message}; ask for a shorter period or another resource, and check the prices of the plan`,
    );
  if (error instanceof CallerGone || presence.hasGone) return new Refusal("unavailable", "the caller went away");
  log.error({ requestId, error }, "a request failed");
  return new Refusal("internal", `the server failed; its log names the reason under request id ${requestId}`);
}

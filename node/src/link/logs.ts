/**
 * A machine's log on the link: lines from a position to the end and, for a follower, new lines.
 *
 * Always:
 * - At most one piece of the log is buffered, however slow the reader is. The log itself is the queue: a
 *   reader that is too slow misses the oldest lines.
 * - A body that ends normally is complete: the end was reached, or the machine was removed. One that breaks
 *   off means that the agent ended.
 */
import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { LOG_TAIL_MAX } from "@flotilla/contract/limits";
import type { LogMessage } from "@flotilla/contract/link/link";
import { InvalidMessage, whole } from "@flotilla/contract/link/read";
import type { MachineLog } from "../machines/workload/machine-log.ts";

/** The requested part of a log: its last lines, or the lines after a position. */
export interface LogsRequest {
  readonly from: { readonly tail: number } | { readonly file: number; readonly byte: number };
  readonly isFollowing: boolean;
}

/** Parses the query of `GET …/logs`. Throws InvalidMessage. */
export function parseLogsRequest(query: URLSearchParams): LogsRequest {
  const isFollowing = query.get("follow") === "1";
  const after = query.get("after");
  if (after === null)
    return { from: { tail: whole(Number(query.get("tail") ?? "0"), "tail", 0, LOG_TAIL_MAX) }, isFollowing };
  const [file, byte] = after.split(":").map((part) => whole(Number(part), "after", 0, Number.MAX_SAFE_INTEGER));
  if (file === undefined || byte === undefined) throw new InvalidMessage("after", "file:byte");
  return { from: { file, byte }, isFollowing };
}

export interface ServeLogsOptions {
  readonly wanted: LogsRequest;
  /** Aborted when the caller disconnects. */
  readonly signal: AbortSignal;
}

/** Resolves when the response has ended. Rejects when the log cannot be read. */
export async function serveLogs(
  response: ServerResponse,
  log: MachineLog,
  { wanted, signal }: ServeLogsOptions,
): Promise<void> {
  const { from, isFollowing } = wanted;
  const now = await log.end();
  let position = "tail" in from ? await log.tail(from.tail, now) : from;
  // Without following, the end is the present one, however fast the log grows.
  const end = isFollowing ? undefined : now;
  response.writeHead(200, { "content-type": "application/x-ndjson" });
  response.flushHeaders();
  for (let isDone = false; !isDone && !signal.aborted; ) {
    const changed = nextChange(log, signal);
    const { lines, next } = await log.read(position, end);
    position = next;
    if (lines.length > 0) {
      const messages: readonly LogMessage[] = [...lines, { next: `${next.file}:${next.byte}` }];
      const text = messages.map((message) => `${JSON.stringify(message)}\n`).join("");
      if (!response.write(text)) await once(response, "drain", { signal }).catch(() => undefined);
    } else if (isFollowing && !log.isRemoved) await changed.promise;
    else isDone = true;
    changed.forget();
  }
  response.end();
}

/** Begins before the log is read, so that no change is missed. */
function nextChange(log: MachineLog, signal: AbortSignal): { readonly promise: Promise<void>; forget(): void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  const stopListening = log.listen(() => forget());
  const forget = (): void => {
    stopListening();
    signal.removeEventListener("abort", forget);
    resolve();
  };
  signal.addEventListener("abort", forget, { once: true });
  if (signal.aborted) forget();
  return { promise, forget };
}

/**
 * Prints a log, and follows it: of a machine, or of all instances of an app.
 *
 * Always:
 * - Lines are printed as they are written and no faster than they are read. Flotilla's own lines, such as how
 *   the workload ended, are printed among them on a terminal and with --json, and otherwise to standard
 *   error, because they are not output of the workload.
 * - Following ends when what has the log is deleted, not when the server restarts: the log is read again from
 *   before its end then, and what was shown is left out.
 */
import { FlotillaError, type LogRecord, readLogRecords } from "@flotilla/sdk";
import type { Call } from "./call.ts";
import { whileUnreachable } from "./server-unreachable.ts";

export interface LogsOptions {
  readonly follow?: boolean;
  readonly tail?: number;
  readonly timestamps?: boolean;
  /** Seconds before now, or an instant. */
  readonly since?: number | string;
  readonly search?: string;
}

interface LogQuery {
  readonly format: "json";
  readonly follow: boolean;
  readonly tail?: number;
  readonly from?: string;
  readonly search?: string;
}

/** The most lines that one request may have. */
const TAIL_MAX = 10_000;
/** Between the end of an answer and the next request. */
const FOLLOW_AGAIN_MS = 500;

/** `ask` requests the log. */
export async function printLog(
  call: Call,
  options: LogsOptions,
  ask: (query: LogQuery) => Promise<Response>,
): Promise<void> {
  const { follow = false, since, search } = options;
  const from = typeof since === "number" ? new Date(call.world.clock.now() - since * 1000).toISOString() : since;
  const part = { ...(from === undefined ? {} : { from }), ...(search === undefined ? {} : { search }) };
  const open = (tail: number | undefined): Promise<Response> =>
    ask({ format: "json", follow, ...part, ...(tail === undefined ? {} : { tail }) });
  const shown = new Shown();
  let answer = await open(options.tail);
  for (;;) {
    try {
      for await (const record of readLogRecords(answer)) if (shown.isNew(record)) await show(call, record, options);
    } catch (error) {
      if (!follow || !(error instanceof FlotillaError) || error.code !== "unreachable") throw error;
    }
    if (!follow) return;
    shown.readAgain();
    await call.world.clock.sleep(FOLLOW_AGAIN_MS);
    try {
      answer = await whileUnreachable(call, () => open(shown.isEmpty ? options.tail : TAIL_MAX));
    } catch (error) {
      if (error instanceof FlotillaError && error.status === 404) return;
      throw error;
    }
  }
}

/** Which lines were shown, for a log that is read again. */
class Shown {
  readonly #of = new Map<string, ShownOfOne>();

  get isEmpty(): boolean {
    return this.#of.values().every(({ isEmpty }) => isEmpty);
  }

  readAgain(): void {
    for (const one of this.#of.values()) one.readAgain();
  }

  /** Times of one writer only grow: instances of an app run on several hosts. */
  isNew(record: LogRecord): boolean {
    const { instanceId = "" } = record;
    const one = this.#of.get(instanceId) ?? new ShownOfOne();
    this.#of.set(instanceId, one);
    return one.isNew(record);
  }
}

class ShownOfOne {
  /** Time of the last line, and how many lines of that time were shown. */
  #at = "";
  #count = 0;
  /** While lines come that were shown: how many of the last time. */
  #again: number | null = null;

  get isEmpty(): boolean {
    return this.#at === "";
  }

  readAgain(): void {
    this.#again = 0;
  }

  isNew({ timestamp, source }: LogRecord): boolean {
    if (this.#again !== null) {
      if (timestamp < this.#at) return false;
      if (timestamp === this.#at && this.#again < this.#count) {
        if (source === "workload") this.#again += 1;
        return false;
      }
      this.#again = null;
    }
    // The server's own last line is not in the log, and has the time of another clock.
    if (source !== "workload") return true;
    this.#count = timestamp === this.#at ? this.#count + 1 : 1;
    this.#at = timestamp;
    return true;
  }
}

async function show(call: Call, record: LogRecord, options: LogsOptions): Promise<void> {
  const to = record.source === "node" ? "errors" : "output";
  if (call.output.isJson) await call.output.jsonLine(record);
  else await call.output.flow(to, Buffer.from(`${lineOf(record, options)}\n`));
}

function lineOf(record: LogRecord, { timestamps = false }: LogsOptions): string {
  const { timestamp, message, source, instanceId } = record;
  const whose = instanceId === undefined ? "" : `[${instanceId}] `;
  return `${timestamps ? `${timestamp}  ` : ""}${whose}${source === "node" ? "flotilla: " : ""}${message}`;
}

/**
 * `flotilla machine logs NAME`: what a machine's workload wrote to stdout and stderr, the oldest of the last lines
 * first.
 *
 * Always: lines are printed as they are written and no faster than they are read. Flotilla's own lines, such as how
 * the workload ended, are printed among them on a terminal and with --json, and otherwise to standard error, because
 * they are not output of the workload.
 */
import { type LogRecord, readLogRecords } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { nodeFetch } from "@flotilla/sdk/node-fetch";
import { findMachineId } from "./find.ts";

export interface LogsOptions {
  readonly follow?: boolean;
  readonly tail?: number;
  readonly timestamps?: boolean;
}

export async function run(call: Call, [reference = ""]: readonly string[], options: LogsOptions): Promise<void> {
  const flotilla = call.flotilla(nodeFetch);
  const id = await findMachineId(flotilla, reference);
  const { follow = false, tail } = options;
  const query = { format: "json", follow, ...(tail === undefined ? {} : { tail }) } as const;
  for await (const record of readLogRecords(await flotilla.listMachineLogs(id, { query }))) {
    const to = record.source === "node" ? "errors" : "output";
    if (call.output.isJson) await call.output.jsonLine(record);
    else await call.output.flow(to, Buffer.from(`${lineOf(record, options)}\n`));
  }
}

function lineOf({ timestamp, message, source }: LogRecord, { timestamps = false }: LogsOptions): string {
  return `${timestamps ? `${timestamp}  ` : ""}${source === "node" ? "flotilla: " : ""}${message}`;
}

/**
 * `flotilla machine logs NAME`: what a machine's workload has written to its two outputs, the oldest of the last lines first.
 *
 * Always: lines come out as they are written and no faster than they are read. What Flotilla itself says, such as how the
 * workload ended, goes among them on a terminal and with --json, and else to standard error: it is no output of anybody's.
 */
import { type LogRecord, readLogRecords } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { patientFetch } from "../patient-fetch.ts";
import { findMachineId } from "./find.ts";

export interface LogsOptions {
  readonly follow?: boolean;
  readonly tail?: number;
  readonly timestamps?: boolean;
}

export async function run(call: Call, [reference = ""]: readonly string[], options: LogsOptions): Promise<void> {
  const flotilla = call.flotilla(patientFetch);
  const id = await findMachineId(flotilla, reference);
  const { follow = false, tail } = options;
  const query = { format: "json", follow, ...(tail === undefined ? {} : { tail }) } as const;
  for await (const record of readLogRecords(await flotilla.listMachineLogs(id, { query }))) {
    const isRemark = record.source === "node" && !call.output.isJson;
    const text = call.output.isJson ? JSON.stringify(record) : lineOf(record, options);
    await call.output.flow(isRemark ? "errors" : "output", Buffer.from(`${text}\n`));
  }
}

function lineOf({ timestamp, message, source }: LogRecord, { timestamps = false }: LogsOptions): string {
  return `${timestamps ? `${timestamp}  ` : ""}${source === "node" ? "flotilla: " : ""}${message}`;
}

/**
 * `flotilla machine logs NAME`: what a machine's workload wrote to stdout and stderr, the oldest of the last
 * lines first.
 */
import type { Call } from "../call.ts";
import { nodeFetch } from "../node-fetch.ts";
import { type LogsOptions, printLog } from "../print-log.ts";
import { findMachineId } from "./find.ts";

export async function run(call: Call, [reference = ""]: readonly string[], options: LogsOptions): Promise<void> {
  const flotilla = call.flotilla(nodeFetch);
  const id = await findMachineId(flotilla, reference);
  await printLog(call, options, (query) => flotilla.listMachineLogs(id, { query }));
}

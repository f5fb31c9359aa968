/**
 * `flotilla app logs APP`: what the instances of an app wrote, each line with its instance.
 */
import type { Call } from "../call.ts";
import { nodeFetch } from "../node-fetch.ts";
import { type LogsOptions, printLog } from "../print-log.ts";

export async function run(call: Call, [name = ""]: readonly string[], options: LogsOptions): Promise<void> {
  const flotilla = call.flotilla(nodeFetch);
  await printLog(call, options, (query) => flotilla.listAppLogs(name, { query }));
}

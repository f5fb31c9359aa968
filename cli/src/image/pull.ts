/**
 * `flotilla image pull REFERENCE`: fetches an image to one node or to all before a machine needs it, and
 * waits until it is cached.
 *
 * The server does the work: Ctrl-C ends the waiting, not the fetching.
 */
import type { Call } from "../call.ts";
import { watchOperation } from "../operation/watch.ts";
import { EXIT_INTERRUPTED } from "../stoppable.ts";

export interface PullOptions {
  readonly node?: string;
}

export async function run(call: Call, [reference = ""]: readonly string[], options: PullOptions) {
  const flotilla = call.flotilla();
  const begun = await flotilla.pullImage({
    reference,
    ...(options.node === undefined ? {} : { nodeId: options.node }),
  });
  const operation = await watchOperation(call, flotilla, begun);
  if (operation === null) return EXIT_INTERRUPTED;
  if (call.output.isJson) call.output.json(operation);
  else for (const { name, message } of operation.steps) call.output.note(`${name}: ${message ?? "done"}`);
  call.output.line(reference);
  return 0;
}

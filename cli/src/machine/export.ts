/**
 * `flotilla machine export NAME`: makes a package of a stopped machine's disk, and waits until it is in the
 * registry. Prints its reference.
 *
 * The server does the work: Ctrl-C ends the waiting, not the export.
 */
import type { Operation } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { watchOperation } from "../operation/watch.ts";
import { EXIT_INTERRUPTED } from "../stoppable.ts";
import { renderBytes } from "../table.ts";
import { findMachineId } from "./find.ts";

export interface ExportOptions {
  readonly tag?: string;
  readonly as?: string;
  readonly env?: boolean;
  readonly detach?: boolean;
}

export async function run(call: Call, [reference = ""]: readonly string[], options: ExportOptions): Promise<number> {
  const { tag, as: name, env, detach } = options;
  const flotilla = call.flotilla();
  const id = await findMachineId(flotilla, reference);
  // Detached, so that its progress is shown; the answer is the operation.
  const begun = (await flotilla.exportMachine(
    id,
    {
      ...(tag === undefined ? {} : { tag }),
      ...(name === undefined ? {} : { name }),
      ...(env === undefined ? {} : { includeEnv: env }),
    },
    { query: { detach: true } },
  )) as Operation;
  const operation = detach === true ? begun : await watchOperation(call, flotilla, begun);
  if (operation === null) return EXIT_INTERRUPTED;
  if (call.output.isJson) call.output.json(operation);
  else if (detach === true) call.output.line(operation.id);
  else printEnded(call, operation);
  return 0;
}

function printEnded({ output }: Call, { steps, resource }: Operation): void {
  const exported = steps.find(({ digest }) => digest !== undefined);
  const { digest = "", sizeBytes = 0, sentBytes = 0, reference = resource.id } = exported ?? {};
  output.note(`${digest}, ${renderBytes(sizeBytes)}, of which ${renderBytes(sentBytes)} were sent`);
  output.line(reference);
}

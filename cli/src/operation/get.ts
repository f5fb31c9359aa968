/**
 * `flotilla operation get ID`: one operation with its steps.
 */
import type { Call } from "../call.ts";
import { clean } from "../table.ts";

export async function run(call: Call, [id = ""]: readonly string[]): Promise<void> {
  const operation = await call.flotilla().getOperation(id);
  if (call.output.isJson) return call.output.json(operation);
  const { kind, resource, status, error, createdAt, updatedAt, steps } = operation;
  call.output.facts([
    ["operation", operation.id],
    ["what", `${kind} of ${resource.name ?? resource.id}`],
    ["status", error === null ? status : `${status}: ${error}`],
    ["asked for", createdAt],
    ["last change", updatedAt],
  ]);
  if (steps.length === 0) return;
  call.output.line();
  call.output.table(
    ["STEP", "STATUS", "BEGUN", "ENDED", "MESSAGE"],
    steps.map((step) => [
      step.name,
      step.status,
      step.startedAt ?? "",
      step.finishedAt ?? "",
      clean(step.message ?? ""),
    ]),
  );
}

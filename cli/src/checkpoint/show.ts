/**
 * `flotilla checkpoint show CHECKPOINT`: one checkpoint, by its id or its name.
 */
import type { Call } from "../call.ts";
import { renderBytes } from "../table.ts";
import { keptText, statusText } from "./ls.ts";

export async function run(call: Call, [reference = ""]: readonly string[]): Promise<void> {
  const checkpoint = await call.flotilla().getCheckpoint(reference);
  if (call.output.isJson) return call.output.json(checkpoint);
  call.output.facts([
    ["checkpoint", checkpoint.id],
    ["name", checkpoint.name],
    ["status", statusText(checkpoint)],
    ["of machine", [checkpoint.machineName, checkpoint.machineId].filter((each) => each !== null).join(", ")],
    ["keeps", keptText(checkpoint)],
    ["size", renderBytes(checkpoint.sizeBytes)],
    ["node", checkpoint.nodeId],
    ["created", checkpoint.createdAt],
  ]);
}

/**
 * `flotilla checkpoint ls`: the checkpoints, oldest first, with the space that each takes.
 */
import { renderSpan } from "@flotilla/base/span";
import type { CheckpointInfo } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { renderBytes } from "../table.ts";

export async function run(call: Call): Promise<void> {
  const checkpoints = await call.flotilla().listCheckpoints();
  if (call.output.isJson) return call.output.json(checkpoints);
  const now = call.world.clock.now();
  call.output.table(
    ["ID", "NAME", "MACHINE", "KEEPS", "SIZE", "NODE", "CREATED", "STATUS"],
    checkpoints.map((checkpoint) => [
      checkpoint.id,
      checkpoint.name ?? "",
      checkpoint.machineName ?? checkpoint.machineId,
      keptText(checkpoint),
      renderBytes(checkpoint.sizeBytes),
      checkpoint.nodeId ?? "",
      `${renderSpan(now - Date.parse(checkpoint.createdAt))} ago`,
      statusText(checkpoint),
    ]),
  );
}

export const keptText = ({ hasMemory }: CheckpointInfo): string => (hasMemory ? "disk and memory" : "disk");

export const statusText = ({ status, error }: CheckpointInfo): string =>
  error === null ? status : `${status}: ${error}`;

/**
 * `flotilla pool ls`: the pools, how many machines wait in each, and why there are too few.
 */
import type { Call } from "../call.ts";

export async function run(call: Call): Promise<void> {
  const pools = await call.flotilla().listPools();
  if (call.output.isJson) return call.output.json(pools);
  call.output.table(
    ["ID", "IMAGE", "WAITING", "CLAIMED", "STATUS"],
    pools.map(({ id, image, idleCount, targetSize, busyCount, status, error }) => [
      id,
      image,
      `${idleCount} of ${targetSize}`,
      String(busyCount),
      error === null ? status : `${status}: ${error}`,
    ]),
  );
}

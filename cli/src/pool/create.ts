/**
 * `flotilla pool create IMAGE`: makes a pool and prints its id. Its machines start in the background.
 */
import type { Call } from "../call.ts";

export interface CreatePoolOptions {
  readonly size?: number;
  readonly cpus?: number;
  readonly memory?: number;
  readonly network: boolean;
  readonly maxIdle?: number;
}

export async function run(call: Call, [image = ""]: readonly string[], options: CreatePoolOptions): Promise<void> {
  const { size, cpus, memory, network, maxIdle } = options;
  const pool = await call.flotilla().createPool({
    image,
    ...(size === undefined ? {} : { targetSize: size }),
    ...(cpus === undefined ? {} : { cpus }),
    ...(memory === undefined ? {} : { memoryMb: memory }),
    ...(network ? {} : { network }),
    ...(maxIdle === undefined ? {} : { maxIdleSecs: maxIdle }),
  });
  if (call.output.isJson) return call.output.json(pool);
  call.output.line(pool.id);
  if (call.output.isWatched) call.output.note("its machines start now: `flotilla pool ls` shows how many wait");
}

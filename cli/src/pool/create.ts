/**
 * `flotilla pool create IMAGE`: makes a pool and prints its id. What waits in it is started in the background.
 */
import type { Call } from "../call.ts";

export interface CreatePoolOptions {
  readonly size?: number;
  readonly cpus?: number;
  readonly memory?: number;
  readonly network: boolean;
  readonly maxIdle?: number;
  readonly shared?: boolean;
}

export async function run(call: Call, [image = ""]: readonly string[], options: CreatePoolOptions): Promise<void> {
  const { size, cpus, memory, network, maxIdle, shared = false } = options;
  const pool = await call.flotilla().createPool({
    image,
    ...(size === undefined ? {} : { targetSize: size }),
    ...(cpus === undefined ? {} : { cpus }),
    ...(memory === undefined ? {} : { memoryMb: memory }),
    ...(network ? {} : { network }),
    ...(maxIdle === undefined ? {} : { maxIdleSecs: maxIdle }),
    ...(shared ? { shared } : {}),
  });
  if (call.output.isJson) return call.output.json(pool);
  call.output.line(pool.id);
  const what = shared ? "the nodes prepare its VMs now" : "its machines start now";
  if (call.output.isWatched) call.output.note(`${what}: \`flotilla pool ls\` shows how many wait`);
}

/**
 * What the system gives to programs of a simulation: random bytes, deadlines, files and sockets, of the world that runs now. Import it before
 * the programs.
 */
import crypto from "node:crypto";
import { syncBuiltinESMExports } from "node:module";
import { type Files, patchFiles } from "./files.ts";
import { type Network, patchNetwork } from "./network.ts";
import type { World } from "./world.ts";

/** What runs now; one at a time in this process. */
interface Host {
  readonly world: World;
  readonly files: Files;
  readonly network: Network;
}

let current: Host | null = null;

function host(): Host {
  if (current === null) throw new Error("no simulation runs");
  return current;
}

export function setHost(next: Host | null): void {
  current = next;
}

const { randomBytes } = crypto;
crypto.randomBytes = ((...parameters: Parameters<typeof randomBytes>) =>
  current?.world.maybeProgram === undefined
    ? randomBytes(...parameters)
    : current.world.ids.bytes(parameters[0])) as typeof randomBytes;
syncBuiltinESMExports();
const { timeout } = AbortSignal;
AbortSignal.timeout = (ms) => {
  const program = current?.world.maybeProgram;
  if (program === undefined) return timeout.call(AbortSignal, ms);
  const late = new AbortController();
  program.world.after(ms, program, () => late.abort(new DOMException("the time is up", "TimeoutError")));
  return late.signal;
};
patchFiles(
  () => host().world.program,
  () => host().files,
);
patchNetwork(
  () => host().network,
  (path) => host().files.put(path),
);

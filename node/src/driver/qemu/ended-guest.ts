/**
 * The guest of a VM that had ended before the node agent came back to it: everything asked of it is refused.
 *
 * It lets `adopt` hand over a VM whose `exited` says how the guest ended, which `gone` could not say.
 */
import { PassThrough } from "node:stream";
import type { Guest, GuestExec } from "../../guest/guest.ts";

export function endedGuest(): Guest {
  const refusal = (): Promise<never> => Promise.reject(new Error("the guest has ended"));
  const ended = (): GuestExec => {
    const [pid, exit] = [refusal(), refusal()];
    // Whoever asked for the exec waits for one of them; the other must not end this process.
    for (const promise of [pid, exit]) promise.catch(() => {});
    const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()];
    for (const stream of [stdin, stdout, stderr]) stream.end();
    return { pid, exit, stdin, stdout, stderr, resize: () => {}, signal: () => {}, kill: () => {} };
  };
  return {
    hello: { protocol: 0, agentVersion: "", isConfigured: true, uptimeMs: 0 },
    configure: refusal,
    warmUp: refusal,
    exec: ended,
    file: ended,
    workload: () => ({ started: refusal(), taken: () => {} }),
    ping: refusal,
    sync: refusal,
    shutDown: refusal,
    closed: Promise.resolve("the guest has ended"),
    close: () => {},
  };
}

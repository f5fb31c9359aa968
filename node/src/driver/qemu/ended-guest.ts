/**
 * The guest of a VM that ended before the node agent found it again: it rejects every request.
 *
 * Lets `adopt` return a VM whose `exited` says how the guest ended, which `gone` could not.
 */
import { PassThrough } from "node:stream";
import type { Guest, GuestExec } from "../../guest/guest.ts";

export function endedGuest(): Guest {
  const refusal = (): Promise<never> => Promise.reject(new Error("the guest has ended"));
  const ended = (): GuestExec => {
    const [pid, exit] = [refusal(), refusal()];
    // The caller awaits one of them; a rejection of the other must not end this process.
    for (const promise of [pid, exit]) promise.catch(() => {});
    const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()];
    for (const stream of [stdin, stdout, stderr]) stream.end();
    return { pid, exit, stdin, stdout, stderr, resize: () => {}, signal: () => {}, kill: () => {} };
  };
  return {
    hello: { isConfigured: true, timerKhz: null },
    configure: refusal,
    warmUp: refusal,
    exec: ended,
    file: ended,
    workload: () => ({ started: refusal(), acknowledge: () => {} }),
    sync: refusal,
    ping: refusal,
    received: 0,
    shutDown: refusal,
    closed: Promise.resolve("the guest has ended"),
    close: () => {},
  };
}

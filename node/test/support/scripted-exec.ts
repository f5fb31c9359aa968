/**
 * A command in a guest whose streams and exit the test controls.
 */
import { PassThrough } from "node:stream";
import type { GuestExec, GuestExit } from "../../src/guest/guest.ts";

/** `kill` is called when the command is to be killed. */
export function scriptedExec(kill: () => void = () => undefined) {
  const exiting = Promise.withResolvers<GuestExit>();
  exiting.promise.catch(() => undefined);
  const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()];
  const nothing = (): void => undefined;
  const exec: GuestExec = {
    pid: Promise.resolve(1),
    stdin,
    stdout,
    stderr,
    exit: exiting.promise,
    resize: nothing,
    signal: nothing,
    kill,
  };
  return { exec, exiting, stdin, stdout, stderr };
}

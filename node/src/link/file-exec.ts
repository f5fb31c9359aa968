/**
 * A file operation that a server of version 1 or 2 of the link requests as an exec: the streams have the guest's own format
 * (GUEST-PROTOCOL.md, files). Later servers use the endpoint of files.ts. Delete it with `file` of ExecStart when
 * LINK_VERSION_LOWEST is 3.
 *
 * Always: a write for which the host's disk has no space ends with the agent's code for that, because the guest, paused by
 * its VMM, cannot send it.
 */
import { Readable } from "node:stream";
import type { Clock } from "@flotilla/base/clock";
import type { FileRequest } from "@flotilla/contract/link";
import type { Guest, GuestExec, GuestExit } from "../guest/guest.ts";

const ROOM_LOOK_MS = 500;
/** The rest of a longer error text is discarded. */
const ERROR_BYTES_MAX = 64 * 1024;
const NO_ROOM = "no_space on the host of the machine";

interface FileExecOptions {
  readonly guest: Guest;
  readonly clock: Clock;
  readonly hasRoom: () => Promise<boolean>;
}

/** Begins the operation. Throws as Guest.file does. */
export function beginFileExec(request: FileRequest, { guest, clock, hasRoom }: FileExecOptions): GuestExec {
  const exec = guest.file(request);
  if (request.operation !== "write") return exec;
  const full = Promise.withResolvers<GuestExit>();
  const stderr = new Readable({ read: () => undefined });
  let bytes = 0;
  exec.stderr.on("data", (chunk: Buffer) => {
    bytes += chunk.byteLength;
    if (bytes <= ERROR_BYTES_MAX) stderr.push(chunk);
  });
  exec.stderr.on("close", () => stderr.destroyed || stderr.push(null));
  let hasEnded = false;
  const end = (): void => {
    hasEnded = true;
  };
  exec.exit.then(end, end);
  const watch = async (): Promise<void> => {
    while (!hasEnded && (await hasRoom().catch(() => true))) await clock.sleep(ROOM_LOOK_MS);
    if (hasEnded) return;
    exec.kill();
    stderr.push(NO_ROOM);
    full.resolve({ exitCode: 1 });
  };
  void watch();
  return {
    pid: exec.pid,
    stdin: exec.stdin,
    stdout: exec.stdout,
    stderr,
    exit: Promise.race([exec.exit, full.promise]),
    resize: (size) => exec.resize(size),
    signal: (signal) => exec.signal(signal),
    kill: (graceMs) => exec.kill(graceMs),
  };
}

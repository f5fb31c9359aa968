/**
 * Starts and ends busy.ts.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

const PROGRAM = fileURLToPath(new URL("./busy.ts", import.meta.url));

export interface BusyProcess extends AsyncDisposable {
  readonly pid: number;
}

/** `share`: of one processor. */
export function startBusy(share: number): BusyProcess {
  const child = spawn(process.execPath, [PROGRAM, String(share)], {
    stdio: ["pipe", "ignore", "inherit"],
    // In its own session, as the server and the node agent are: Linux shares the processors between sessions first.
    detached: true,
  });
  return {
    pid: child.pid ?? 0,
    [Symbol.asyncDispose]: async () => {
      const ended = once(child, "exit");
      child.stdin.end();
      await ended;
    },
  };
}

/**
 * Starts and ends empty-server.ts, with which a benchmark compares the server.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const PROGRAM = fileURLToPath(new URL("./empty-server.ts", import.meta.url));

export interface EmptyHttp extends AsyncDisposable {
  readonly url: string;
  readonly pid: number;
}

export async function startEmptyHttp(): Promise<EmptyHttp> {
  const child = spawn(process.execPath, [PROGRAM], {
    stdio: ["pipe", "pipe", "inherit"],
    // In its own session, as ours is: Linux shares the processors between sessions first.
    detached: true,
  });
  const [url] = (await once(createInterface({ input: child.stdout }), "line")) as [string];
  return {
    url,
    pid: child.pid ?? 0,
    [Symbol.asyncDispose]: async () => {
      const ended = once(child, "exit");
      child.stdin.end();
      await ended;
    },
  };
}

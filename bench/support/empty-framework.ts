/**
 * Starts and ends empty-server.ts, which a benchmark of the server is measured against.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const PROGRAM = fileURLToPath(new URL("./empty-server.ts", import.meta.url));

export interface EmptyFramework extends AsyncDisposable {
  readonly url: string;
}

export async function startEmptyFramework(): Promise<EmptyFramework> {
  const child = spawn(process.execPath, [PROGRAM], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const [url] = (await once(createInterface({ input: child.stdout }), "line")) as [string];
  return {
    url,
    [Symbol.asyncDispose]: async () => {
      const ended = once(child, "exit");
      child.stdin.end();
      await ended;
    },
  };
}

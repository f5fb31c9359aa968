/**
 * Starts and ends flood.ts.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { FloodCount, FloodOrder } from "./flood-calls.ts";
import { giveLeftovers } from "./host.ts";
import { removeOnInterrupt } from "./interrupt.ts";

const PROGRAM = fileURLToPath(new URL("./flood.ts", import.meta.url));

export interface FloodProcess extends AsyncDisposable {
  readonly pid: number;
  begin(): void;
  /** Resolves with the counts of its answers. */
  end(): Promise<FloodCount>;
}

/** Resolves when all its data is prepared. */
export async function startFlood(order: FloodOrder): Promise<FloodProcess> {
  const child = spawn(process.execPath, [PROGRAM, JSON.stringify(order)], {
    stdio: ["pipe", "pipe", "inherit"],
    // In its own session, as the server is: Linux shares the processors between sessions first.
    detached: true,
  });
  const exited = once(child, "exit");
  const kill = async (): Promise<void> => {
    child.kill("SIGKILL");
    await exited;
  };
  const forget = removeOnInterrupt(kill);
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const line = async (): Promise<string> => {
    const { value, done } = await lines.next();
    if (done === true) throw new Error("the flood ended by itself; its messages are above");
    return value;
  };
  await giveLeftovers(child.pid ?? 0);
  await line();
  return {
    pid: child.pid ?? 0,
    begin: () => void child.stdin.write("\n"),
    async end() {
      child.stdin.end();
      return JSON.parse(await line()) as FloodCount;
    },
    async [Symbol.asyncDispose]() {
      forget();
      if (child.exitCode === null) await kill();
    },
  };
}

/**
 * Our programs as processes of a bench, and the address of its PostgreSQL for them.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { realpath } from "node:fs/promises";
import path from "node:path";
import { createInterface } from "node:readline";
import type { EmbeddedPostgres } from "../../server/src/embedded-postgres/embedded.ts";

const ROOT = path.resolve(import.meta.dirname, "../..");
const JOIN_TOKEN = "join-token-of-the-bench";
const COMMON = { FLOTILLA_JOIN_TOKEN: JOIN_TOKEN, FLOTILLA_LOG_LEVEL: "error" };

/** Starts the program at this path of the checkout. */
export function start(
  program: string,
  environment: Readonly<Record<string, string>>,
  argv: readonly string[] = [],
): ChildProcess {
  const env = { ...process.env, ...COMMON, ...environment };
  // A Ctrl-C must not reach it before the bench has removed what it made.
  return spawn(process.execPath, [path.join(ROOT, program), ...argv], {
    env,
    stdio: ["pipe", "pipe", "inherit"],
    detached: true,
  });
}

/** The first line that the program prints. Continues to read, so that the pipe never fills. */
export async function firstLine(child: ChildProcess): Promise<string> {
  if (child.stdout === null) throw new Error("a program has no output");
  const lines = createInterface({ input: child.stdout });
  const [line] = (await Promise.race([
    once(lines, "line"),
    once(child, "exit").then(() => Promise.reject(new Error("a program did not start; its messages are above"))),
  ])) as [string];
  return line;
}

/** Ends it, and waits for that. */
export async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, "exit");
  child.kill("SIGTERM");
  await ended;
}

/** The socket as a path that is valid in every process. */
export async function urlOf({ connection }: EmbeddedPostgres): Promise<string> {
  if (!("host" in connection)) return connection.connectionString;
  const { host, user, password, database } = connection;
  return `postgres://${user}:${password}@${encodeURIComponent(await realpath(host))}/${database}`;
}

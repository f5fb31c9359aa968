/**
 * `flotilla mcp --listen` for tests, and keys for its callers.
 *
 * Always: it ends with its test.
 */
import type { TestContext } from "node:test";
import { until } from "../../test/support/until.ts";
import { startCli } from "./run-cli.ts";
import type { RunningUp } from "./run-up.ts";

export interface Listening {
  readonly url: string;
  said(): string;
  stop(): Promise<unknown>;
}

/** Resolves when it listens. */
export async function listening(t: TestContext, up: RunningUp, ...argv: string[]): Promise<Listening> {
  // It has no key: each caller has its own.
  const environment = { FLOTILLA_URL: up.url, FLOTILLA_API_KEY: "smk_unused" };
  const { child, ran } = startCli(t, ["mcp", "--listen", "127.0.0.1:0", ...argv], { environment });
  let errors = "";
  child.stderr?.on("data", (chunk: Buffer) => (errors += chunk));
  await until(() => /serves (\S+),/.test(errors), { what: "the address", deadlineMs: 20_000 });
  const [, url = ""] = /serves (\S+),/.exec(errors) ?? [];
  return { url, said: () => errors, stop: () => (child.kill("SIGTERM"), ran) };
}

export async function newKey(up: RunningUp, ...scopes: string[]): Promise<string> {
  const made = await up.cli("key", "create", ...scopes.flatMap((scope) => ["--scope", scope]));
  return String(made.output).trim();
}

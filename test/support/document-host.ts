/**
 * A host on which the commands of documents run as printed: in new namespaces, where the default ports are
 * free and no other network is reached, with a new home directory and one Flotilla with default settings.
 *
 * Needs `enterWorld` (namespaces.ts) before it. Disposed, it leaves no program and no file.
 */
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createLog } from "../../server/src/log.ts";
import { putCluster } from "../../server/test/support/cluster.ts";
import type { Block } from "./documents.ts";
import { until } from "./until.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const START_MS = 120_000;

export interface DocumentHost extends AsyncDisposable {
  /** One shell runs the blocks, so that a variable of one is there in the next. `said`: both its outputs. */
  run(blocks: readonly Block[]): Promise<{ readonly code: number | null; readonly said: string }>;
}

/** `prepare` is called on the host, and returns settings of its Flotilla besides the defaults. */
export async function startDocumentHost(
  prepare: () => Promise<Readonly<Record<string, string>>>,
): Promise<DocumentHost> {
  execFileSync("ip", ["link", "set", "lo", "up"]);
  const settings = await prepare();
  const home = mkdtempSync(join(tmpdir(), "flotilla-documents-"));
  /** Links to the checkout, beside which the commands may write files. */
  const directory = join(home, "checkout");
  mkdirSync(directory);
  for (const name of ["flotilla", "scripts", "node_modules"]) symlinkSync(join(ROOT, name), join(directory, name));
  const data = join(home, ".local/share/flotilla");
  mkdirSync(data, { recursive: true });
  await putCluster(data, createLog("error"));
  const environment = { PATH: process.env["PATH"], HOME: home, NODE_COMPILE_CACHE: process.env["NODE_COMPILE_CACHE"] };
  const up = spawn("./flotilla", ["up"], { cwd: directory, env: { ...environment, ...settings }, stdio: "pipe" });
  const ended = once(up, "close");
  const dispose = async (): Promise<void> => {
    up.kill("SIGTERM");
    await ended;
    rmSync(home, { recursive: true, force: true });
  };
  let output = "";
  let errors = "";
  up.stdout.on("data", (chunk: Buffer) => (output += chunk));
  up.stderr.on("data", (chunk: Buffer) => (errors += chunk));
  await until(() => output.includes("Ctrl-C stops") || up.exitCode !== null, {
    what: "the greeting",
    deadlineMs: START_MS,
  }).catch(async (error: unknown) => {
    await dispose();
    throw error;
  });
  assert.match(output, /^Flotilla runs at http:\/\/127\.0\.0\.1:8080 /, errors);
  return {
    async run(blocks) {
      const script = blocks.flatMap(({ file, line, lines }) => [`echo '--- ${file}:${line}' >&2`, ...lines]).join("\n");
      const shell = spawn("bash", ["-euo", "pipefail", "-c", script], {
        cwd: directory,
        env: environment,
        stdio: ["ignore", "pipe", "pipe"],
      });
      let said = "";
      for (const stream of [shell.stdout, shell.stderr]) stream.on("data", (chunk: Buffer) => (said += chunk));
      const [code] = (await once(shell, "close")) as [number | null];
      return { code, said };
    },
    [Symbol.asyncDispose]: dispose,
  };
}

/**
 * `flotilla image make-local KIND`: makes an image from Debian packages and imports it, so that a machine can
 * have Python or Node without an image registry.
 *
 * scripts/make-local-image makes the archive in a temporary directory, which is always removed, also when the
 * program is asked to stop: the script ends first, with the programs that it runs. The archive is made on
 * this machine and imported through the API, so the server may be on another host.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Call } from "../call.ts";
import { Failure, usage } from "../failure.ts";
import { stoppable } from "../stoppable.ts";
import { importArchive } from "./import.ts";

export interface MakeLocalOptions {
  readonly name?: string;
}

/** The kinds that the script has recipes for. */
const KINDS: readonly string[] = ["python", "node", "debian", "e2b-base", "e2b-code-interpreter"];
const LINES_SHOWN = 20;
const SCRIPT = fileURLToPath(new URL("../../../scripts/make-local-image", import.meta.url));

export async function run(call: Call, [kind = ""]: readonly string[], options: MakeLocalOptions): Promise<number> {
  if (!KINDS.includes(kind)) throw usage(`there is no recipe for "${kind}"`, `it is one of ${KINDS.join(", ")}`);
  // Checked first: a refusal after minutes of work would waste them.
  await call.flotilla().getCaller();
  const directory = await mkdtemp(join(tmpdir(), "flotilla-image-"));
  const stopping = new AbortController();
  const { signal } = stopping;
  try {
    const archive = join(directory, `${kind}.tar`);
    return await stoppable(call, stopping, async () => {
      await make(call, { kind, archive, signal });
      await importArchive(call, archive, { reference: options.name ?? `local/${kind}` }, signal);
    });
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

interface Making {
  readonly kind: string;
  readonly archive: string;
  readonly signal: AbortSignal;
}

async function make(call: Call, { kind, archive, signal }: Making): Promise<void> {
  using _progress = call.output.progress(`making the image ${kind} from Debian packages`);
  // On a terminal: the progress line, and the script's output if it failed. Otherwise: all output.
  // In a separate process group, which ends as a whole.
  const child = spawn("sh", [SCRIPT, kind, archive], { stdio: ["ignore", "pipe", "pipe"], detached: true });
  signal.addEventListener("abort", () => endGroup(child), { once: true });
  const said: string[] = [];
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk: Buffer) => said.push(String(chunk)));
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", resolve);
  });
  signal.throwIfAborted();
  if (code === 0) return;
  for (const line of said.join("").trimEnd().split("\n").slice(-LINES_SHOWN)) call.output.note(line);
  throw new Failure(`the image ${kind} could not be made (exit code ${code})`, "see the script's messages above");
}

function endGroup({ pid, exitCode, signalCode }: ChildProcess): void {
  if (pid !== undefined && exitCode === null && signalCode === null) process.kill(-pid, "SIGTERM");
}

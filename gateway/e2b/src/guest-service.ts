/**
 * The helpers in a machine (guest/): a static program for commands, which starts in milliseconds, and one in
 * Python for files, code and ports, which starts with the first request for one of these.
 *
 * Always: each is started by one command of the API, which ends when the helper listens. A machine that has
 * one already keeps it. They run as root, as E2B's own does, and only the gateway's token opens them.
 *
 * A gateway that dies in the middle leaves helpers that work: their token comes from the sandbox's record.
 */
import { readdir, readFile } from "node:fs/promises";
import type { Flotilla } from "@flotilla/sdk";
import { machineOf } from "./ids.ts";
import type { Facts } from "./record.ts";
import { Refused } from "./refused.ts";
import { ENVD_PORT } from "./route.ts";

const SOURCES = new URL("../guest/", import.meta.url);
const PROGRAM = new URL("../dist/commands", import.meta.url);
const PLACE = "/run/flotilla-e2b/commands";
/** A file that is written through the API may not be run yet. */
const LOADER = ["/bin/sh", "-c", `chmod 755 ${PLACE} && exec ${PLACE}`];
const START_SECONDS = 30;
const ERROR_CHARACTERS = 500;

/**
 * Writes its files, listens, and serves in the background: a second interpreter would take as long again.
 * Exit code 0: it listens.
 */
const STARTER = `
import json, os, sys
given = json.loads(sys.stdin.buffer.read())
home = "/run/flotilla-e2b"
os.makedirs(home, 0o755, exist_ok=True)
for name, text in given["files"].items():
    with open(os.path.join(home, name), "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(os.path.join(home, name), 0o644)
sys.path.insert(0, home)
import main
listener = main.listen(given["port"])
if os.fork() != 0:
    os._exit(0)
os.setsid()
os.chdir("/")
os.dup2(os.open(os.path.join(home, "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
main.serve(given, listener)
`;

export interface HelperRequest {
  readonly flotilla: Flotilla;
  readonly sandboxId: string;
  /** ENVD_PORT or FILES_PORT. */
  readonly port: number;
  readonly token: string;
  readonly facts: Facts;
  /** What every command of the sandbox has. */
  readonly environment: Readonly<Record<string, string>>;
}

let sources: Promise<Readonly<Record<string, string>>> | null = null;
let program: Promise<Uint8Array<ArrayBuffer>> | null = null;

/** Starts the helper, and the machine if it does not run. Throws a Refused, or the API's own error. */
export async function startHelper(request: HelperRequest): Promise<void> {
  const { flotilla, sandboxId, port, token, facts, environment } = request;
  const machineId = machineOf(sandboxId);
  const isForCommands = port === ENVD_PORT;
  let given: object = { token, port, environment };
  if (isForCommands) {
    program ??= readFile(PROGRAM);
    await flotilla.writeFile(machineId, await program, { query: { path: PLACE } });
  } else {
    sources ??= readSources();
    given = { files: await sources, token, port, commands: ENVD_PORT };
  }
  const ended = await flotilla.exec(machineId, {
    command: isForCommands ? LOADER : ["python3", "-I", "-S", "-c", STARTER],
    stdin: JSON.stringify(given),
    timeoutSeconds: START_SECONDS,
    cwd: "/",
    user: "0",
  });
  if (ended.exitCode === 0) return;
  const said = (ended.stderr || ended.stdout).trim().slice(-ERROR_CHARACTERS);
  if (/not found|No such file or directory/.test(said)) {
    const needs = isForCommands ? "sh and chmod, which a sandbox needs" : "python3, which files and code need";
    throw new Refused(400, `the image of template ${facts.template} has no ${needs}`);
  }
  throw new Refused(500, `the sandbox's helper did not start (exit code ${ended.exitCode}): ${said}`);
}

/** What its commands have besides the variables of the request. */
export const environmentOf = (sandboxId: string, facts: Facts): Record<string, string> => ({
  E2B_SANDBOX: "true",
  E2B_SANDBOX_ID: sandboxId,
  E2B_TEMPLATE_ID: facts.template,
});

async function readSources(): Promise<Readonly<Record<string, string>>> {
  const names = (await readdir(SOURCES)).filter((name) => /\.(py|mjs)$/.test(name));
  const texts = await Promise.all(names.map(async (name) => [name, await readFile(new URL(name, SOURCES), "utf8")]));
  return Object.fromEntries(texts) as Readonly<Record<string, string>>;
}

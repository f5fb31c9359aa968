/**
 * The helper in a machine, which serves commands, files and ports of a sandbox (guest/).
 *
 * Always: it is started by one command of the API, which ends when the helper listens. A machine that has one
 * already keeps it. It runs as root, as E2B's own does, and only the gateway's token
 * opens it.
 *
 * A gateway that dies in the middle leaves a helper that works: its token comes from the sandbox's record.
 */
import { readdir, readFile } from "node:fs/promises";
import type { Flotilla } from "@flotilla/sdk";
import { machineOf } from "./ids.ts";
import type { Facts } from "./record.ts";
import { Refused } from "./refused.ts";
import { ENVD_PORT } from "./route.ts";

const SOURCES = new URL("../guest/", import.meta.url);
const START_SECONDS = 30;
const ERROR_CHARACTERS = 500;

/**
 * Writes its files, and becomes it in the background. Exit code 0: it listens. Its standard input is the
 * first line's, so that the rest of the input is for the helper alone.
 */
const STARTER = `
import json, os, subprocess, sys
given = json.loads(sys.stdin.buffer.read())
home = "/run/flotilla-e2b"
os.makedirs(home, 0o755, exist_ok=True)
for name, text in given.pop("files").items():
    with open(os.path.join(home, name), "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(os.path.join(home, name), 0o644)
log = open(os.path.join(home, "log"), "ab")
child = subprocess.Popen([sys.executable, "-I", "-S", "-c",
    "import runpy, sys; sys.path.insert(0, %r); runpy.run_path(%r, run_name='__main__')" % (home, home + "/main.py")],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True, cwd="/")
child.stdin.write(json.dumps(given).encode())
child.stdin.close()
line = child.stdout.readline()
if line != b"listening\\n":
    with open(os.path.join(home, "log"), "rb") as file:
        sys.stderr.write(file.read()[-2000:].decode("utf-8", "replace"))
    sys.exit(1)
`;

export interface HelperRequest {
  readonly flotilla: Flotilla;
  readonly sandboxId: string;
  readonly token: string;
  readonly facts: Facts;
  /** What every command of the sandbox has. */
  readonly environment: Readonly<Record<string, string>>;
}

let sources: Promise<Readonly<Record<string, string>>> | null = null;

/** Starts the helper, and the machine if it does not run. Throws a Refused, or the API's own error. */
export async function startHelper({ flotilla, sandboxId, token, facts, environment }: HelperRequest): Promise<void> {
  sources ??= readSources();
  const given = { files: await sources, token, port: ENVD_PORT, environment };
  const ended = await flotilla.exec(machineOf(sandboxId), {
    command: ["python3", "-I", "-S", "-c", STARTER],
    stdin: JSON.stringify(given),
    timeoutSeconds: START_SECONDS,
    cwd: "/",
    user: "0",
  });
  if (ended.exitCode === 0) return;
  const said = (ended.stderr || ended.stdout).trim().slice(-ERROR_CHARACTERS);
  if (/not found in \$PATH|No such file or directory/.test(said))
    throw new Refused(400, `the image of template ${facts.template} has no python3, which a sandbox needs`);
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

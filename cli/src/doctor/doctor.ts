/**
 * `flotilla doctor`: what this machine can do, what is missing and what that means; then whether a server is
 * reachable, whether the key is valid there and whether it has a node.
 *
 * With `--fleet` instead what the server finds that each server, node and authority of the fleet needs.
 *
 * The checks of the host are the node agent's (node/src/doctor/main.ts), run as a program, because the node
 * knows what it needs. A missing server is a warning, not a fault: the doctor also runs before the first
 * start.
 *
 * The exit code is 1 when a check is bad, and when the fleet's server does not answer.
 */
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { settings } from "@flotilla/contract/settings";
import { type FleetFinding, type Flotilla, FlotillaError } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { EXIT_REFUSED, Failure } from "../failure.ts";
import { type Output, type Style, styled } from "../output.ts";
import { wrap } from "../table.ts";
import type { Check } from "./check.ts";
import { loopChecks } from "./loops.ts";

const DOCTOR_MAIN = fileURLToPath(new URL("../../../node/src/doctor/main.ts", import.meta.url));
const STYLES: Readonly<Record<Check["status"], Style>> = { ok: "green", warn: "yellow", bad: "red" };
const CALL_TIMEOUT_MS = 5_000;
/** The server calls the nodes, some of which may be slow. A monitor must not hang on a server that does. */
const FLEET_TIMEOUTS = { timeoutMs: 30_000 };

const FINGERPRINT_CHARACTERS = 12;

export interface DoctorOptions {
  readonly fleet?: boolean;
  readonly cacheDir?: string;
}

export async function run(
  call: Call,
  _operands: readonly string[],
  { fleet, cacheDir }: DoctorOptions,
): Promise<number> {
  const checks =
    fleet === true ? await checkFleet(call) : [...(await checkHost(call, cacheDir)), ...(await checkServer(call))];
  if (call.output.isJson) call.output.json(checks);
  else show(call.output, checks, fleet === true);
  return checks.some((check) => check.status === "bad") ? EXIT_REFUSED : 0;
}

/** The fleet as the server sees it; needs an admin key. */
async function checkFleet(call: Call): Promise<readonly Check[]> {
  using _progress = call.output.progress("asking the server about its nodes");
  const flotilla = call.flotilla();
  const { url } = call.connect();
  const [server, findings, loops] = await Promise.all([
    flotilla.getHealth(FLEET_TIMEOUTS).then((health) => readyCheck(flotilla, `${health.version} at ${url}`)),
    flotilla.listFindings(FLEET_TIMEOUTS),
    flotilla.listLoops(FLEET_TIMEOUTS),
  ]);
  return [server, ...loopChecks(loops, call.world.clock.now()), ...findings.map(checkOf)];
}

/** The finding as a line of the doctor. */
function checkOf({ subject: { kind, id }, severity, message, action }: FleetFinding): Check {
  const shown = kind === "authority" ? (id ?? "").slice(0, FINGERPRINT_CHARACTERS) : (id ?? "");
  return { name: `${kind} ${shown}`.trim(), status: severity, value: message, meaning: action };
}

/**
 * A server that answers may still be one that a load balancer sends nothing to: its disk is full, for
 * example.
 */
async function readyCheck(flotilla: Flotilla, value: string): Promise<Check> {
  const lack = await flotilla.getReadiness({ timeoutMs: CALL_TIMEOUT_MS }).then(() => null, refusalOf);
  if (lack === null) return { name: "server", status: "ok", value, meaning: "reachable" };
  return { name: "server", status: "bad", value, meaning: `not ready: ${lack}` };
}

function refusalOf(error: unknown): string {
  if (error instanceof FlotillaError) return error.text;
  throw error;
}

async function checkHost(call: Call, cacheDir: string | undefined): Promise<readonly Check[]> {
  using _progress = call.output.progress("looking at this machine");
  const { dataDir } = call.options;
  const child = spawn(process.execPath, [DOCTOR_MAIN], {
    env: {
      ...call.world.environment,
      ...(dataDir !== undefined && { [settings.dataDirectory.env]: dataDir }),
      ...(cacheDir !== undefined && { [settings.cacheDirectory.env]: cacheDir }),
    },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const chunks: Buffer[] = [];
  for await (const chunk of child.stdout) chunks.push(chunk as Buffer);
  try {
    return JSON.parse(Buffer.concat(chunks).toString()) as Check[];
  } catch {
    throw new Failure("the check of this machine gave no result", "see its messages above");
  }
}

/**
 * Also where no call can be made: a damaged file of `flotilla login`, for example, is one finding among
 * others.
 */
async function checkServer(call: Call): Promise<readonly Check[]> {
  try {
    return await checkConnection(call);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    return [{ name: "server", status: "bad", value: error.message, meaning: error.advice ?? "" }];
  }
}

async function checkConnection(call: Call): Promise<readonly Check[]> {
  using _progress = call.output.progress("connecting to the server");
  const { url, keySource } = call.connect();
  const flotilla = call.flotilla();
  const health = await flotilla.getHealth({ timeoutMs: CALL_TIMEOUT_MS }).catch(() => null);
  if (health === null) {
    const meaning = "no server runs there, or it cannot be reached; `npm start` starts one on this machine";
    return [{ name: "server", status: "warn", value: `no answer from ${url}`, meaning }];
  }
  const node: Check =
    health.nodesReady > 0
      ? {
          name: "nodes",
          status: "ok",
          value: `${health.nodesReady} of ${health.nodesTotal} ready`,
          meaning: "machines can be started",
        }
      : {
          name: "nodes",
          status: "bad",
          value: `0 of ${health.nodesTotal} ready`,
          meaning: "no machine can be started; see the node's log",
        };
  const key = await flotilla.getCaller({ timeoutMs: CALL_TIMEOUT_MS }).then(
    (caller): Check => ({
      name: "key",
      status: "ok",
      value: `tenant ${caller.tenantName}, ${caller.scopes.join(" ") || "no scope"}`,
      meaning: `from ${keySource}`,
    }),
    (error: unknown): Check => {
      if (!(error instanceof FlotillaError)) throw error;
      // What the server lacks says nothing of the key.
      if (error.status >= 500)
        return { name: "key", status: "bad", value: `not checked: ${error.text}`, meaning: "see the server's log" };
      const meaning =
        keySource === null ? "`flotilla login` saves one" : `from ${keySource}; \`flotilla login\` saves another`;
      return { name: "key", status: "bad", value: error.text, meaning };
    },
  );
  return [await readyCheck(flotilla, `${health.version} at ${url}`), key, node];
}

function show(output: Output, checks: readonly Check[], isOfFleet: boolean): void {
  const width = Math.max(...checks.map((check) => check.name.length));
  for (const { name, status, value, meaning } of checks) {
    output.line(styled(STYLES[status], status.padEnd(4)), `  ${name.padEnd(width)}  ${value}`);
    if (meaning === "") continue;
    const margin = " ".repeat(width + 8);
    for (const line of wrap(meaning, output.columns - margin.length)) output.line(margin, styled("dim", line));
  }
  const count = (status: Check["status"]): number => checks.filter((check) => check.status === status).length;
  const [warn, bad] = [count("warn"), count("bad")];
  output.line();
  const meaning = isOfFleet
    ? "the text below each says what to do."
    : "Flotilla does not work on this machine until they are fixed.";
  if (bad > 0) output.line(`${bad} of ${checks.length} checks ${bad === 1 ? "is" : "are"} bad: ${meaning}`);
  else if (warn > 0) output.line(`Nothing is bad; ${warn} of ${checks.length} checks deserve a look.`);
  else output.line("All is well.");
}

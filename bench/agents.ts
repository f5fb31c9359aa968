/**
 * What the doors for agents add to the API: creation to the first command and a command with E2B's client
 * through the gateway, a command as a tool of the Model Context Protocol, and one with the Python SDK.
 *
 * All take turns with the API in the same run, on machines of one image, and the API runs the same program as
 * the client beside it: E2B's is a login shell of bash, the others' is `true` itself.
 */
import { execFile } from "node:child_process";
import { createReadStream } from "node:fs";
import path from "node:path";
import { Readable } from "node:stream";
import { promisify } from "node:util";
import { parseSettings } from "@flotilla/contract/settings";
import { takeTurns } from "./support/above-and-below.ts";
import { monotonic, timed } from "./support/clock.ts";
import { e2bOptions, freePort, makeSandbox, openMcp, openPython, runTrueIn } from "./support/doors.ts";
import { BenchFlotilla } from "./support/flotilla.ts";
import type { Finding } from "./support/report.ts";
import { atMost, summarize } from "./support/statistics.ts";

const IMAGE = "local/bench-agents";
/** What E2B's client makes of `true`. */
const SHELL = ["/bin/bash", "-l", "-c", "true"];
const SOURCE = { type: "image", reference: IMAGE } as const;
const WARM_UPS = 100;
const TOGETHER = 10;
/** Commands for each machine that is made. */
const COMMANDS_EACH = 15;

/** Makes n machines on each side, and runs COMMANDS_EACH times as many commands through each door. */
export async function agents(n: number): Promise<Finding> {
  const port = await freePort();
  const gatewayUrl = `http://127.0.0.1:${port}`;
  await using flotilla = await BenchFlotilla.start({
    ...{ driver: "qemu", environment: { FLOTILLA_E2B_LISTEN: `127.0.0.1:${port}` } },
  });
  flotilla.requireOwn();
  await flotilla.liftLimits();
  await flotilla.client.importImage(await imageWithPython(), { query: { reference: IMAGE } });
  const created = await creations(flotilla, gatewayUrl, n);
  const ran = await commands(flotilla, gatewayUrl, n * COMMANDS_EACH);
  return findingOf(created, ran);
}

/** Made from Debian's packages when it is not in the cache. */
async function imageWithPython(): Promise<ReadableStream<Uint8Array>> {
  const archive = path.join(parseSettings(["cacheDirectory"], process.env).cacheDirectory, "images/bench-python.tar");
  const script = path.resolve(import.meta.dirname, "../scripts/make-local-image");
  await promisify(execFile)("sh", [script, "python", archive], { maxBuffer: 16 * 1024 * 1024 });
  return Readable.toWeb(createReadStream(archive)) as ReadableStream<Uint8Array>;
}

interface Creations {
  readonly api: readonly number[];
  readonly e2b: readonly number[];
  /** The part of E2B's that is `Sandbox.create`. */
  readonly created: readonly number[];
}

async function creations(flotilla: BenchFlotilla, gatewayUrl: string, n: number): Promise<Creations> {
  const options = e2bOptions(gatewayUrl, flotilla.connection);
  const found = { api: [] as number[], e2b: [] as number[], created: [] as number[] };
  // The first of everything is slower, on both sides, and makes the image's template: neither counts.
  for (let sample = -2; sample < n; sample++) {
    await flotilla.untilOneWaits();
    const apiMs = await timed(() => createByApi(flotilla));
    await flotilla.untilOneWaits();
    const startedAt = monotonic();
    const sandbox = await makeSandbox(IMAGE, options);
    const createdMs = monotonic() - startedAt;
    await runTrueIn(sandbox);
    const e2bMs = monotonic() - startedAt;
    for (const { id, source } of await flotilla.client.listMachines())
      if (source.reference === IMAGE) await flotilla.client.deleteMachine(id);
    if (sample < 0) {
      await flotilla.untilImageHasTemplate();
      continue;
    }
    found.api.push(apiMs);
    found.e2b.push(e2bMs);
    found.created.push(createdMs);
  }
  return found;
}

async function createByApi(flotilla: BenchFlotilla): Promise<void> {
  const { id } = await flotilla.create({ source: SOURCE });
  await flotilla.client.startMachine(id);
  await execOf(flotilla, id, SHELL);
}

async function execOf(flotilla: BenchFlotilla, id: string, command: readonly string[]): Promise<void> {
  const { exitCode } = await flotilla.client.exec(id, { command });
  if (exitCode !== 0) throw new Error(`${command.join(" ")} ended with ${exitCode}`);
}

type Commands = Readonly<Record<"shell" | "e2b" | "exec" | "mcp" | "python", readonly number[]>>;

async function commands(flotilla: BenchFlotilla, gatewayUrl: string, count: number): Promise<Commands> {
  const sandbox = await makeSandbox(IMAGE, e2bOptions(gatewayUrl, flotilla.connection));
  const [machine] = await flotilla.client.listMachines({ query: { label: ["e2b=sandbox"] } });
  if (machine === undefined) throw new Error("the sandbox is not a machine");
  const { id } = machine;
  await using mcp = await openMcp(flotilla.connection);
  await using python = await openPython(flotilla.connection);
  const works = [
    () => execOf(flotilla, id, SHELL),
    () => runTrueIn(sandbox),
    () => execOf(flotilla, id, ["true"]),
    () => mcp.runTrue(id),
    () => python.runTrue(id),
  ];
  const sides = works.map((work) => ({ work, pids: {} }));
  const measured = await takeTurns(sides, { count, warmUps: WARM_UPS, together: TOGETHER });
  await sandbox.kill();
  const [shell = [], e2b = [], exec = [], byMcp = [], byPython = []] = measured.map(({ tookMs }) => tookMs);
  return { shell, e2b, exec, mcp: byMcp, python: byPython };
}

function findingOf(creations: Creations, ran: Commands): Finding {
  const [e2bCreate, apiCreate] = [summarize(creations.e2b), summarize(creations.api)];
  const [shell, exec] = [summarize(ran.shell), summarize(ran.exec)];
  const [e2b, mcp, python] = [summarize(ran.e2b), summarize(ran.mcp), summarize(ran.python)];
  return {
    name: "agents",
    series: [
      { what: "E2B: Sandbox.create, first command", summary: e2bCreate },
      { what: "API: create, start, the same command", summary: apiCreate, isBaseline: true },
      { what: "of E2B's: Sandbox.create", summary: summarize(creations.created) },
      { what: "E2B: commands.run('true')", summary: e2b },
      { what: "API: exec of the same command", summary: shell },
      { what: "MCP: run_command of `true`", summary: mcp },
      { what: "Python SDK: exec of `true`", summary: python },
      { what: "API: exec of `true`, with the TypeScript SDK", summary: exec },
    ],
    reaches: [
      atMost("E2B's create to first command ÷ the API's, p50", e2bCreate.p50Ms / apiCreate.p50Ms, 1.3, ""),
      atMost("E2B's command: added to the API's, p50", e2b.p50Ms - shell.p50Ms, 5),
      atMost("MCP: added to the API's exec, p50", mcp.p50Ms - exec.p50Ms, 5),
      atMost("Python SDK: added to the API's exec, p50", python.p50Ms - exec.p50Ms, 5),
    ],
    setting: { image: IMAGE, size: "default" },
    notes: [],
  };
}

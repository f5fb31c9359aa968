/**
 * The clients of agents and their frameworks, each with one command in a machine as its work: E2B's, the
 * Model Context Protocol's, and the Python SDK's.
 *
 * Always: a client has connected before its first command, and keeps its connection, as its users do. What is
 * started here ends with `await using`.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import path from "node:path";
import { createInterface } from "node:readline";
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { Sandbox, type SandboxOpts } from "e2b";
import { removeOnInterrupt } from "./interrupt.ts";

const ROOT = path.resolve(import.meta.dirname, "../..");
const PYTHON = "/usr/bin/python3";
/** One command for each line of its input. */
const PROGRAM = `
import sys
from flotilla import Flotilla
with Flotilla() as flotilla:
    for line in sys.stdin:
        print(flotilla.exec(line.strip(), {"command": ["true"]})["exitCode"], flush=True)
`;

/** Address and key of a Flotilla. */
export interface Access {
  readonly url: string;
  readonly apiKey: string;
}

/** A client that runs `true` in a machine. */
export interface Door extends AsyncDisposable {
  readonly runTrue: (machineId: string) => Promise<void>;
}

/** The options of E2B's client for a gateway and a key of Flotilla. */
export function e2bOptions(gatewayUrl: string, { apiKey }: Access): SandboxOpts {
  const hex = Buffer.from(apiKey.replace("smk_", ""), "base64url").toString("hex");
  return { apiUrl: gatewayUrl, sandboxUrl: gatewayUrl, apiKey: `e2b_${hex}`, timeoutMs: 600_000 };
}

export async function makeSandbox(template: string, options: SandboxOpts): Promise<Sandbox> {
  return await Sandbox.create(template, options);
}

export async function runTrueIn(sandbox: Sandbox): Promise<void> {
  const { exitCode } = await sandbox.commands.run("true");
  if (exitCode !== 0) throw new Error(`true ended with ${exitCode}`);
}

/** `flotilla mcp` on standard streams, with the public client. */
export async function openMcp({ url, apiKey }: Access): Promise<Door> {
  const client = new Client({ name: "bench", version: "1" });
  const env = { PATH: process.env["PATH"] ?? "", HOME: "/nonexistent", FLOTILLA_URL: url, FLOTILLA_API_KEY: apiKey };
  const transport = new StdioClientTransport({ command: path.join(ROOT, "flotilla"), args: ["mcp"], env });
  const forget = removeOnInterrupt(() => client.close());
  await client.connect(transport);
  return {
    runTrue: async (machine) => {
      const call = { name: "run_command", arguments: { machine, command: ["true"] } };
      const { structuredContent } = await client.callTool(call);
      const exitCode = (structuredContent as { readonly exitCode?: unknown } | undefined)?.exitCode;
      if (exitCode !== 0) throw new Error(`run_command of true was answered with ${JSON.stringify(structuredContent)}`);
    },
    [Symbol.asyncDispose]: async () => {
      forget();
      await client.close();
    },
  };
}

/** The Python SDK in the distribution's Python. */
export async function openPython({ url, apiKey }: Access): Promise<Door> {
  const env = { PYTHONPATH: path.join(ROOT, "sdk-python"), PYTHONDONTWRITEBYTECODE: "1" };
  const child = spawn(PYTHON, ["-c", PROGRAM], {
    env: { ...env, PATH: process.env["PATH"], FLOTILLA_URL: url, FLOTILLA_API_KEY: apiKey },
    stdio: ["pipe", "pipe", "inherit"],
  });
  const ended = once(child, "exit");
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const end = async (): Promise<void> => {
    child.stdin.end();
    await ended;
  };
  const forget = removeOnInterrupt(end);
  return {
    runTrue: async (machine) => {
      child.stdin.write(`${machine}\n`);
      const { value } = await lines.next();
      if (value !== "0") throw new Error(`exec with the Python SDK was answered with ${String(value)}`);
    },
    [Symbol.asyncDispose]: async () => {
      forget();
      await end();
    },
  };
}

/** A port that was free a moment ago. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  if (address === null || typeof address === "string") throw new Error("no port is free");
  return address.port;
}

/**
 * `flotilla mcp`: the Model Context Protocol, on standard input and output with the key of this command, or
 * over HTTP with each caller's own.
 *
 * Always: on standard output is the protocol alone. Everything else is said on standard error.
 *
 * The protocol is a library's (`@modelcontextprotocol/server`, Apache-2.0), because both of its eras, their
 * negotiation and signed state are its work; with zod (MIT), which that package needs anyway, for the inputs
 * of tools. Its adapter for Node brings a web framework for what is forty lines in exchange.ts. All of it is
 * loaded only by this verb.
 *
 * It keeps nothing on disk: a killed one leaves the machines that were made through it, and its next start
 * counts them again.
 */
import { readFileSync } from "node:fs";
import { serveStdio, StdioServerTransport } from "@modelcontextprotocol/server/stdio";
import type { Call } from "../call.ts";
import { usage } from "../failure.ts";
import { nodeFetch } from "../node-fetch.ts";
import { stoppable } from "../stoppable.ts";
import type { Access } from "./access.ts";
import { Callers } from "./callers.ts";
import { Ceilings } from "./ceilings.ts";
import { listen } from "./listen.ts";
import { makeServer } from "./server.ts";
import { askedCodec, type Common } from "./session.ts";
import { checkingVersions } from "./version-check.ts";

export interface McpOptions {
  readonly listen?: string;
  readonly allowHost?: readonly string[];
  readonly machines?: number;
  readonly spendLimit?: number;
  /** False with --no-confirm. */
  readonly confirm?: boolean;
}

export async function run(call: Call, _operands: readonly string[], options: McpOptions): Promise<number> {
  const { machines, spendLimit, confirm = true } = options;
  const ceilings = new Ceilings({ machines, spendMicros: spendLimit }, call.world.clock);
  const { version } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as Common;
  const common = { ceilings, asked: askedCodec(), confirms: confirm, version };
  const stop = ceilings.start();
  try {
    return await (options.listen === undefined
      ? overStdio(call, common)
      : overHttp(call, common, options.listen, options.allowHost ?? []));
  } finally {
    stop();
  }
}

async function overStdio(call: Call, common: Common): Promise<number> {
  const flotilla = call.flotilla(nodeFetch);
  const access: Access = { flotilla, caller: await flotilla.getCaller() };
  await common.ceilings.watch(access);
  const { input, output } = call.world.streams;
  const stopping = new AbortController();
  // Its client has gone, and no answer can be sent: calls that are under way end with it.
  call.world.endWithCommand();
  return stoppable(call, stopping, async () => {
    const ended = new Promise<void>((resolve) => {
      for (const event of ["end", "close", "error"]) input.once(event, () => resolve());
      stopping.signal.addEventListener("abort", () => resolve());
    });
    const server = serveStdio(() => makeServer({ ...access, common }), {
      transport: checkingVersions(new StdioServerTransport(input, output)),
      onerror: (error) => call.output.note(`flotilla mcp: ${error.message}`),
    });
    await ended;
    await server.close();
    stopping.signal.throwIfAborted();
  });
}

async function overHttp(call: Call, common: Common, at: string, names: readonly string[]): Promise<number> {
  const { url } = call.connect();
  const callers = new Callers(url, call.world.clock);
  const address = addressOf(at);
  const server = await listen({
    ...address,
    names,
    clock: call.world.clock,
    authenticate: async (bearer) => {
      const access = await callers.of(bearer);
      if (access !== null) await common.ceilings.watch(access);
      return access;
    },
    factory: (access) => makeServer({ ...access, common }),
    note: (text) => call.output.note(`flotilla mcp: ${text}`),
  });
  const stopping = new AbortController();
  return stoppable(call, stopping, async () => {
    call.output.note(`flotilla mcp: serves http://${server.address}/mcp, with machines of ${url}`);
    const stopped = new Promise<void>((resolve) => stopping.signal.addEventListener("abort", () => resolve()));
    await stopped;
    await server.close();
    stopping.signal.throwIfAborted();
  });
}

/** Throws a usage error. */
export function addressOf(at: string): { readonly host: string; readonly port: number } {
  const [, host = "", port = ""] = /^(\[[0-9a-f:.]+\]|[a-z0-9.-]+):(\d{1,5})$/i.exec(at) ?? [];
  if (host === "" || Number(port) > 65_535)
    throw usage(`--listen is "${at}", which is not ADDRESS:PORT`, "such as 127.0.0.1:8090");
  return { host: host.replace(/^\[|\]$/g, ""), port: Number(port) };
}

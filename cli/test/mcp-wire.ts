/**
 * The newer era of the Model Context Protocol as bytes, over the command's standard streams and over HTTP:
 * for tests of what a library of clients would hide.
 *
 * Always: a peer's process or connections end with its test.
 */
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import { until } from "../../test/support/until.ts";
import { ERAS } from "./mcp-client.ts";

const MAIN = fileURLToPath(new URL("../src/main.ts", import.meta.url));
const ANSWER = { what: "the answer", deadlineMs: 30_000 };

type Json = Readonly<Record<string, unknown>>;

/** A message of the server. */
export interface Message {
  readonly id?: unknown;
  readonly method?: string;
  readonly params?: Json;
  readonly result?: Json;
  readonly error?: { readonly code: number; readonly message: string; readonly data?: Json };
}

export interface Peer {
  readonly door: "stdio" | "http";
  /** Sends a request with the metadata of its era, unless `meta` says others, and returns its answer. */
  ask(method: string, params?: Json, meta?: Json): Promise<Message>;
  /** Sends a request, and returns what arrives until its answer, the answer included. */
  all(method: string, params?: Json, meta?: Json): Promise<readonly Message[]>;
}

const PROTOCOL_VERSION = "io.modelcontextprotocol/protocolVersion";

export const META: Json = {
  [PROTOCOL_VERSION]: ERAS.newer,
  "io.modelcontextprotocol/clientInfo": { name: "wire", version: "1" },
  "io.modelcontextprotocol/clientCapabilities": { elicitation: { form: {} } },
};

let ids = 0;

const requestOf = (method: string, params: Json = {}, meta: Json = META) => {
  ids += 1;
  return { jsonrpc: "2.0", id: ids, method, params: { ...params, _meta: { ...meta } } };
};

export interface StdioPeer extends Peer {
  /** Writes a line as it is. */
  write(line: string): void;
  /** All lines that were printed. */
  readonly lines: readonly string[];
}

export function stdioPeer(t: TestContext, environment: Readonly<Record<string, string>>): StdioPeer {
  const env = { PATH: process.env["PATH"] ?? "", HOME: "/nonexistent", ...environment };
  const child = spawn(process.execPath, [MAIN, "mcp"], { env, stdio: ["pipe", "pipe", "ignore"] });
  t.after(() => child.kill("SIGKILL"));
  const lines: string[] = [];
  createInterface({ input: child.stdout }).on("line", (line) => lines.push(line));
  const all: Peer["all"] = async (method, params, meta) => {
    const request = requestOf(method, params, meta);
    const from = lines.length;
    child.stdin.write(`${JSON.stringify(request)}\n`);
    const since = (): Message[] => lines.slice(from).map((line) => JSON.parse(line) as Message);
    await until(() => since().some(({ id, method: asks }) => id === request.id && asks === undefined), ANSWER);
    return since();
  };
  return {
    door: "stdio",
    lines,
    write: (line) => void child.stdin.write(`${line}\n`),
    all,
    ask: async (...given) => answerIn(await all(...given)),
  };
}

export interface HttpPeer extends Peer {
  /** Sends a request with headers that replace those of its era; null: without it. */
  post(body: unknown, headers?: Readonly<Record<string, string | null>>, signal?: AbortSignal): Promise<Response>;
  request(method: string, params?: Json, meta?: Json): ReturnType<typeof requestOf>;
}

/** What the body says, as a client's header does. */
function versionOf(params: Json | undefined): string {
  const stated = (params?.["_meta"] as Json | undefined)?.[PROTOCOL_VERSION];
  return typeof stated === "string" ? stated : ERAS.newer;
}

export function httpPeer(url: string, key: string): HttpPeer {
  const post: HttpPeer["post"] = (body, headers = {}, signal) => {
    const { method, params } = body as { method?: string; params?: Json };
    const name = params?.["name"] ?? params?.["uri"];
    const all = {
      authorization: `Bearer ${key}`,
      accept: "application/json, text/event-stream",
      "content-type": "application/json",
      "mcp-protocol-version": versionOf(params),
      "mcp-method": method ?? null,
      "mcp-name": typeof name === "string" ? name : null,
      ...headers,
    };
    const sent = Object.entries(all).filter((each): each is [string, string] => each[1] !== null);
    const init = {
      method: "POST",
      headers: sent,
      body: JSON.stringify(body),
      ...(signal === undefined ? {} : { signal }),
    };
    return fetch(url, init);
  };
  const all: Peer["all"] = async (method, params, meta) => messagesOf(await post(requestOf(method, params, meta)));
  return { door: "http", post, request: requestOf, all, ask: async (...given) => answerIn(await all(...given)) };
}

/** The messages of an answer, which is JSON or a stream of events. */
export async function messagesOf(answer: Response): Promise<readonly Message[]> {
  const body = await answer.text();
  if (answer.headers.get("content-type")?.startsWith("text/event-stream") !== true)
    return body === "" ? [] : [JSON.parse(body) as Message];
  const data = body.split("\n").filter((line) => line.startsWith("data:"));
  return data.map((line) => JSON.parse(line.slice("data:".length)) as Message);
}

function answerIn(messages: readonly Message[]): Message {
  const answer = messages.findLast(({ method }) => method === undefined);
  if (answer === undefined) throw new Error(`no answer in ${JSON.stringify(messages)}`);
  return answer;
}

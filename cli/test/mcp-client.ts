/**
 * A client of the Model Context Protocol for tests: the public library's, in either era, over the command's
 * standard streams or HTTP.
 *
 * Always: client and command end with their test.
 */
import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const MAIN = fileURLToPath(new URL("../src/main.ts", import.meta.url));

/** The protocol's revisions of both eras. */
export const ERAS = { older: "2025-11-25", newer: "2026-07-28" } as const;
export type Era = keyof typeof ERAS;

export interface McpCaller {
  readonly client: Client;
  /** The texts of a result. */
  call(name: string, input?: Record<string, unknown>, signal?: AbortSignal): Promise<Called>;
  /** What its user was asked. */
  readonly questions: string[];
  /** What its user answers; null: declines. */
  agrees: boolean | null;
}

export interface Called {
  readonly said: string;
  readonly isError: boolean;
  readonly facts: Readonly<Record<string, unknown>>;
}

export type Door =
  | { readonly argv?: readonly string[]; readonly environment: Readonly<Record<string, string>> }
  | { readonly url: string; readonly key: string };

/** Connects in the era; `canAsk: false` is a client that cannot ask its user. */
export async function connectMcp(t: TestContext, era: Era, door: Door, canAsk = true): Promise<McpCaller> {
  const mode = era === "older" ? "legacy" : { pin: ERAS.newer };
  const client = new Client(
    { name: "test", version: "1" },
    { capabilities: canAsk ? { elicitation: { form: {} } } : {}, versionNegotiation: { mode } },
  );
  const caller: McpCaller = { client, questions: [], agrees: true, call: (...given) => call(client, ...given) };
  if (canAsk)
    client.setRequestHandler("elicitation/create", ({ params }) => {
      caller.questions.push(params.message);
      if (caller.agrees === null) return { action: "decline" };
      return { action: "accept", content: { confirm: caller.agrees } };
    });
  t.after(() => client.close());
  await client.connect(transportOf(door));
  return caller;
}

function transportOf(door: Door) {
  if ("url" in door)
    return new StreamableHTTPClientTransport(new URL(door.url), {
      requestInit: { headers: { authorization: `Bearer ${door.key}` } },
    });
  const env = { PATH: process.env["PATH"] ?? "", HOME: "/nonexistent", ...door.environment };
  return new StdioClientTransport({ command: process.execPath, args: [MAIN, "mcp", ...(door.argv ?? [])], env });
}

async function call(
  client: Client,
  name: string,
  input: Record<string, unknown> = {},
  signal?: AbortSignal,
): Promise<Called> {
  const options = signal === undefined ? {} : { signal };
  const result = await client.callTool({ name, arguments: input }, options);
  const said = result.content.map((part) => (part.type === "text" ? part.text : `[${part.type}]`)).join("\n");
  return { said, isError: result.isError === true, facts: (result.structuredContent ?? {}) as Called["facts"] };
}

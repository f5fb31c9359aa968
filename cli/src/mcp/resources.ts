/**
 * Files and logs as resources, for clients that attach them to a conversation.
 *
 * Always: a resource has at most FILE_BYTES_MAX; a file that is longer is refused, with what reads it in
 * parts.
 */
import { FlotillaError } from "@flotilla/sdk";
import {
  type McpServer,
  ProtocolError,
  ProtocolErrorCode,
  type ReadResourceResult,
  ResourceNotFoundError,
  ResourceTemplate,
  type Variables,
} from "@modelcontextprotocol/server";
import { Failure } from "../failure.ts";
import { findMachine } from "../machine/find.ts";
import { CeilingReached } from "./ceilings.ts";
import { readLog } from "./read-log.ts";
import { readPart } from "./read-part.ts";
import { may } from "./access.ts";
import type { Session } from "./session.ts";

const FILE_BYTES_MAX = 1024 * 1024;
const LISTED_MAX = 100;
const TAIL_LINES = 1_000;

/** Registers the resources that the key may read. */
export function addResources(server: McpServer, session: Session): void {
  const mayRead = may(session, "machine:read");
  if (mayRead) addMachineLogs(server, session);
  if (may(session, "app:read")) addAppLogs(server, session);
  if (mayRead && may(session, "machine:files")) addFiles(server, session);
}

function addFiles(server: McpServer, session: Session): void {
  const template = new ResourceTemplate("flotilla://machines/{machine}/files/{+path}", { list: undefined });
  const about = { title: "A file of a machine", description: `Up to ${FILE_BYTES_MAX} bytes of a machine's file.` };
  server.registerResource("machine-file", template, about, (uri, variables, { mcpReq }) =>
    reading(uri, async () => {
      await session.common.ceilings.starting(session);
      const { id } = await findMachine(session.flotilla, variable(variables, "machine"));
      const wanted = { id, path: variable(variables, "path"), offset: 0, limit: FILE_BYTES_MAX, signal: mcpReq.signal };
      const { bytes, text, total } = await readPart(session.flotilla, wanted);
      if (total === null || total > FILE_BYTES_MAX)
        throw new Failure(
          `the file has ${total ?? "more"} bytes, a resource at most ${FILE_BYTES_MAX}: read_file reads parts`,
        );
      return text === null ? { blob: Buffer.from(bytes).toString("base64") } : { text, mimeType: "text/plain" };
    }),
  );
}

function addMachineLogs(server: McpServer, session: Session): void {
  const list = async () => {
    const machines = await session.flotilla.listMachines({ query: { limit: LISTED_MAX } });
    return {
      resources: machines.map(({ id, name }) => ({
        uri: `flotilla://machines/${id}/logs`,
        name: `log of ${name ?? id}`,
        mimeType: "text/plain",
      })),
    };
  };
  const template = new ResourceTemplate("flotilla://machines/{machine}/logs", { list });
  const about = { title: "The log of a machine", mimeType: "text/plain" };
  server.registerResource("machine-log", template, about, (uri, variables, { mcpReq: { signal } }) =>
    reading(uri, async () => {
      const { id } = await findMachine(session.flotilla, variable(variables, "machine"));
      const query = { tail: TAIL_LINES };
      return {
        text: await readLog(await session.flotilla.listMachineLogs(id, { query, signal })),
        mimeType: "text/plain",
      };
    }),
  );
}

function addAppLogs(server: McpServer, session: Session): void {
  const list = async () => {
    const apps = await session.flotilla.listApps();
    return {
      resources: apps
        .slice(0, LISTED_MAX)
        .map(({ name }) => ({ uri: `flotilla://apps/${name}/logs`, name: `log of ${name}`, mimeType: "text/plain" })),
    };
  };
  const template = new ResourceTemplate("flotilla://apps/{app}/logs", { list });
  const about = { title: "The log of an app", mimeType: "text/plain" };
  server.registerResource("app-log", template, about, (uri, variables, { mcpReq: { signal } }) =>
    reading(uri, async () => {
      const query = { tail: TAIL_LINES, follow: false };
      const answer = await session.flotilla.listAppLogs(variable(variables, "app"), { query, signal });
      return { text: await readLog(answer), mimeType: "text/plain" };
    }),
  );
}

type Content = { readonly text: string; readonly mimeType: string } | { readonly blob: string };

/** Refusals have no results here, so they are errors with their text. */
async function reading({ href: uri }: URL, read: () => Promise<Content>): Promise<ReadResourceResult> {
  try {
    return { contents: [{ uri, ...(await read()) }] };
  } catch (error) {
    if (error instanceof FlotillaError && error.code === "not_found") throw new ResourceNotFoundError(uri, error.text);
    if (error instanceof Failure) throw new ResourceNotFoundError(uri, error.message);
    if (!(error instanceof FlotillaError || error instanceof CeilingReached)) throw error;
    throw new ProtocolError(ProtocolErrorCode.InternalError, error.message);
  }
}

function variable(variables: Variables, name: string): string {
  const value = variables[name];
  const raw = Array.isArray(value) ? value.join("/") : (value ?? "");
  try {
    return decodeURIComponent(raw);
  } catch {
    return raw;
  }
}

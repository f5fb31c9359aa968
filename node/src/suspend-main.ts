/**
 * A separate program, for the host: asks the node agent of this host to suspend or shut down its machines,
 * because the host goes down (`suspend`), or to run them again (`resume`). Prints its answer as JSON.
 *
 * `flotilla node suspend` and `resume` run it; the command line does not import the node agent. It needs no
 * key: the agent's socket is its user's. Exits with 1 when the agent does not answer, with 2 when an argument
 * or a setting is invalid.
 */
import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import { join, resolve } from "node:path";
import { text } from "node:stream/consumers";
import { messageOf } from "@flotilla/base/errors";
import { LINK_ROUTES } from "@flotilla/contract/link/routes";
import { linkHeader, LINK_HEADER, OWN_LINK_VERSIONS } from "@flotilla/contract/link/version";
import { parseSettings } from "@flotilla/contract/settings";
import { linkSocketPath } from "./link/socket-path.ts";

async function call(
  socketPath: string,
  { method, path }: { method: string; path: string },
  body: unknown,
): Promise<string> {
  const headers = { [LINK_HEADER]: linkHeader(OWN_LINK_VERSIONS), "content-type": "application/json" };
  const sent = request({ socketPath, method, path, headers });
  sent.end(body === null ? undefined : JSON.stringify(body));
  const [response] = (await once(sent, "response")) as [IncomingMessage];
  const answer = await text(response);
  if (response.statusCode !== 200) throw new Error(`the node agent refused it with ${response.statusCode}: ${answer}`);
  return answer;
}

/** With what to do. */
function explained(error: unknown, socketPath: string): string {
  const { code } = (error ?? {}) as NodeJS.ErrnoException;
  if (code === "EACCES") return "the node agent runs as another user: run this as root";
  if (code === "ENOENT" || code === "ECONNREFUSED")
    return `no node agent answers at ${socketPath}: start it, or name its data directory with --data-dir`;
  return messageOf(error);
}

const [verb, deadlineMs] = process.argv.slice(2);
try {
  // tidy-allow environment: entry point of a program, like main.ts of the node agent
  const { dataDirectory } = parseSettings(["dataDirectory"], process.env);
  const socketPath = linkSocketPath(join(resolve(dataDirectory), "node"));
  const route = verb === "suspend" ? LINK_ROUTES.suspendAll : LINK_ROUTES.resumeAll;
  const body = verb === "suspend" ? { deadlineMs: Number(deadlineMs) } : null;
  try {
    process.stdout.write(await call(socketPath, route, body));
  } catch (error) {
    process.stderr.write(`${explained(error, socketPath)}\n`);
    process.exitCode = 1;
  }
} catch (error) {
  process.stderr.write(`${messageOf(error)}\n`);
  process.exitCode = 2;
}

/**
 * The node agent's side of the link: HTTP on a Unix socket that only this user, or the server's, may open,
 * and on connections with servers of other hosts (parking.ts, link-listener.ts).
 *
 * Owns the socket's file. Serves exactly the routes of contract/src/link/routes.ts, and leaves what they mean
 * to machines/, images/, exec.ts, files.ts and dial.ts.
 *
 * A caller can do everything to the machines of this node, so it is trusted with them. It may still hang or
 * be faulty, so what it holds is bounded.
 *
 * Always:
 * - Every request is answered. An unexpected error is a 500 with its message, because the only caller is the
 *   operator's server.
 * - A message is bounded, in time as well (bodies.ts).
 */
import { chmod, chown, mkdir, rm, stat, statfs } from "node:fs/promises";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { dirname } from "node:path";
import type { Clock } from "@flotilla/base/clock";
import { userOf } from "@flotilla/base/directory-owner";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import type { DesiredMachine, LinkError } from "@flotilla/contract/link/link";
import type { ReplaceAnswer } from "@flotilla/contract/link/machines";
import { LINK_FILE_OPERATIONS } from "@flotilla/contract/link/file-parts";
import { readDesiredMachine, readReplaceRequest } from "@flotilla/contract/link/generated";
import { InvalidMessage, whole } from "@flotilla/contract/link/read";
import { findLinkRoute, type LinkRouteName } from "@flotilla/contract/link/routes";
import {
  LINK_HEADER,
  type LinkVersions,
  linkVersionsOf,
  OWN_LINK_VERSIONS,
  versionRefusal,
} from "@flotilla/contract/link/version";
import type { Branches } from "../branches/branches.ts";
import type { Images } from "../images/images.ts";
import type { Fleet } from "../machines/fleet.ts";
import type { Incoming } from "../moves/incoming.ts";
import type { OutgoingDeps } from "../moves/outgoing.ts";
import { OutgoingPoints, type PointDeps } from "../moves/outgoing-points.ts";
import type { Exports } from "../packages/exports.ts";
import type { Replacements } from "../replacing/replacements.ts";
import { Terminals } from "../terminals/terminals.ts";
import { FileFailure } from "../guest/file-answer.ts";
import type { Guest } from "../guest/guest.ts";
import { refuse, sendJson } from "./answer.ts";
import { boundLeftover, readJson } from "./bodies.ts";
import { Dials } from "./dial.ts";
import { CallerGone, type Exchange } from "./exchange.ts";
import { type LinkExecOptions, serveExec } from "./exec.ts";
import { serveFile, statusOfFailure } from "./files.ts";
import { type AgentRestart, restartAgent, resumeAll, suspendAll } from "./host.ts";
import { importImage, listImages, pullImage, removeImage } from "./images.ts";
import { parseLogsRequest, serveLogs } from "./logs.ts";
import {
  beginIncoming,
  commitIncoming,
  describe,
  discardIncoming,
  receivePart,
  refusalOf,
  releaseOutgoing,
  sendPart,
} from "./moves.ts";
import { exportMachine } from "./packages.ts";
import type { Peer } from "./parking.ts";
import {
  beginPoint,
  commitPoint,
  describePoint,
  makePoint,
  readMemoryUse,
  receivePointFile,
  releasePoint,
  sendPointFile,
} from "./points.ts";
import { serveTerminal } from "./terminal.ts";

const MACHINE_ID = /^mach-[0-9a-f]{32}$/;
const WAIT_MS_MAX = 10 * 60_000;
/**
 * More than the calls of all servers of a fleet; each may use another descriptor. Parked connections have
 * their own bound.
 */
const CONNECTIONS_MAX = 16_384;
/** Longer than the server's pool keeps a connection, so that it is never closed under a request. */
const KEEP_ALIVE_MS = 120_000;
/** Below this the guests of a host are about to be paused at their next write. */
const FREE_BYTES_MIN = 16 * 2 ** 20;

export interface LinkOptions {
  readonly socketPath: string;
  /** The server's user, where that is another one: it may open the socket, and nothing else of the node's. */
  readonly serverUid: number | null;
  /** Archives that are being imported; emptied by the agent at its start. */
  readonly temporaryDirectory: string;
  readonly fleet: Fleet;
  readonly incoming: Incoming;
  readonly replacements: Replacements;
  readonly branches: Branches;
  readonly exports: Exports;
  readonly images: Images;
  /** What machines and points that leave need. */
  readonly outgoing: OutgoingDeps & PointDeps;
  readonly clock: Clock;
  readonly log: Log;
  /** This incarnation of the agent. */
  readonly bootId: string;
  /** Absent: the agent cannot be restarted by a request. */
  readonly restart?: AgentRestart;
  /** Default: those of this release. */
  readonly versions?: LinkVersions;
}

export interface ServedLink extends AsyncDisposable {
  /** Serves a connection with a server or an ingress that was authenticated. */
  readonly serve: (socket: Socket, peer: Peer) => void;
}

/** Starts to listen; a socket that an earlier agent left is replaced. */
export async function serveLink(options: LinkOptions): Promise<ServedLink> {
  const link = new Link(options);
  const server = createServer((request, response) => link.handle(request, response));
  // Execs last for hours, and their callers may be silent.
  server.requestTimeout = 0;
  server.headersTimeout = KEEP_ALIVE_MS;
  server.timeout = 0;
  server.keepAliveTimeout = KEEP_ALIVE_MS;
  server.maxConnections = CONNECTIONS_MAX;
  const directory = dirname(options.socketPath);
  await mkdir(directory, { recursive: true, mode: 0o700 });
  // The short one could have been made by anyone.
  const { uid, mode } = await stat(directory);
  if (uid !== process.getuid?.()) throw new Error(`${directory} belongs to another user; remove it`);
  await rm(options.socketPath, { force: true });
  await listen(server, options.socketPath);
  await chmod(options.socketPath, 0o600);
  if (options.serverUid !== null && options.serverUid !== uid) {
    // Its group alone: below are files that any user may read who gets there.
    await chown(directory, -1, userOf(options.serverUid).gid);
    await chmod(directory, (mode & 0o700) | 0o010);
    await chown(options.socketPath, options.serverUid, -1);
  }
  return {
    serve: (socket, peer) => {
      if (peer === "ingress") link.limit(socket);
      server.emit("connection", socket);
      // Its reading was paused by the reading of the bytes before HTTP.
      socket.resume();
    },
    [Symbol.asyncDispose]: async () => {
      link.stop();
      server.closeAllConnections();
      await new Promise<void>((resolve) => {
        server.close(() => resolve());
      });
      await rm(options.socketPath, { force: true });
    },
  };
}

function listen(server: Server, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen({ path }, () => {
      server.removeListener("error", reject);
      resolve();
    });
  });
}

class Link {
  readonly #options: LinkOptions & { readonly outgoingPoints: OutgoingPoints };
  readonly #dials = new Dials();
  readonly #terminals = new Terminals();
  readonly #limited = new WeakSet<Socket>();
  #isStopping = false;
  readonly #serve: Readonly<Record<Exclude<LinkRouteName, "exec">, (exchange: Exchange) => Promise<void> | void>> = {
    dial: (exchange) => this.#dial(exchange),
    connect: (exchange) => this.#connect(exchange),
    terminal: (exchange) => this.#terminal(exchange),
    file: (exchange) => this.#file(exchange),
    putMachine: (exchange) => this.#putMachine(exchange),
    replaceVmm: (exchange) => this.#replaceVmm(exchange),
    readLogs: (exchange) => this.#readLogs(exchange),
    suspendAll: (exchange) => suspendAll(exchange, this.#options),
    resumeAll: (exchange) => resumeAll(exchange, this.#options),
    restartAgent: (exchange) => restartAgent(exchange, { ...this.#options, isStopping: () => this.#isStopping }),
    listImages: (exchange) => listImages(exchange, this.#options),
    pullImage: (exchange) => pullImage(exchange, this.#options),
    importImage: (exchange) => importImage(exchange, this.#options),
    removeImage: (exchange) => removeImage(exchange, this.#options),
    describeOutgoing: (exchange) => describe(exchange, this.#options),
    releaseOutgoing: (exchange) => releaseOutgoing(exchange, this.#options),
    sendFile: (exchange) => sendPart("file", exchange, this.#options),
    sendDiskRound: (exchange) => sendPart("diskRound", exchange, this.#options),
    sendMemoryRounds: (exchange) => sendPart("memoryRounds", exchange, this.#options),
    sendRest: (exchange) => sendPart("rest", exchange, this.#options),
    beginIncoming: (exchange) => beginIncoming(exchange, this.#options),
    receiveFile: (exchange) => receivePart("file", exchange, this.#options),
    receiveDiskRound: (exchange) => receivePart("diskRound", exchange, this.#options),
    receiveMemoryRounds: (exchange) => receivePart("memoryRounds", exchange, this.#options),
    receiveRest: (exchange) => receivePart("rest", exchange, this.#options),
    commitIncoming: (exchange) => commitIncoming(exchange, this.#options),
    discardIncoming: (exchange) => discardIncoming(exchange, this.#options),
    readMemoryUse: (exchange) => readMemoryUse(exchange, this.#options),
    exportMachine: (exchange) => exportMachine(exchange, this.#options),
    makePoint: (exchange) => makePoint(exchange, this.#options),
    releasePoint: (exchange) => releasePoint(exchange, this.#options),
    describePoint: (exchange) => describePoint(exchange, this.#options),
    sendPointFile: (exchange) => sendPointFile(exchange, this.#options),
    beginPoint: (exchange) => beginPoint(exchange, this.#options),
    receivePointFile: (exchange) => receivePointFile(exchange, this.#options),
    commitPoint: (exchange) => commitPoint(exchange, this.#options),
  };

  constructor(options: LinkOptions) {
    this.#options = { ...options, outgoingPoints: new OutgoingPoints(options.outgoing) };
  }

  /** The connections that now end are not left by their callers. */
  stop(): void {
    this.#isStopping = true;
  }

  /** On this connection ports of machines may be opened, and nothing else. */
  limit(socket: Socket): void {
    this.#limited.add(socket);
  }

  handle(request: IncomingMessage, response: ServerResponse): void {
    boundLeftover(request, response, this.#options.clock);
    const refusal = this.#versionRefusal(request);
    if (refusal !== null) {
      request.resume();
      return refuse(response, 426, refusal);
    }
    const { url = "/", method = "" } = request;
    const at = url.indexOf("?");
    const found = findLinkRoute(method, at < 0 ? url : url.slice(0, at));
    const opensPort = found?.name === "dial" || found?.name === "connect";
    const isPermitted = opensPort || !this.#limited.has(request.socket);
    if (found === undefined || !isPermitted) return refuseRoute(request, response);
    const { name, parameters } = found;
    if (name === "exec") return this.#exec(parameters["id"] ?? "", request, response);
    const query = new URLSearchParams(at < 0 ? "" : url.slice(at + 1));
    void this.#answer(this.#serve[name], { request, response, query, parameters });
  }

  /** Never rejects. */
  async #answer(serve: (exchange: Exchange) => Promise<void> | void, parts: Omit<Exchange, "signal">): Promise<void> {
    const { request, response } = parts;
    const gone = new AbortController();
    response.once("close", () => gone.abort(new CallerGone()));
    try {
      await serve({ ...parts, signal: gone.signal });
    } catch (error) {
      this.#refuse(request, response, error);
    }
  }

  /** The server's version and this node's may not meet. */
  #versionRefusal(request: IncomingMessage): LinkError | null {
    try {
      const versions = linkVersionsOf(request.headers[LINK_HEADER]);
      const own = { name: "this node", versions: this.#options.versions ?? OWN_LINK_VERSIONS };
      const message = versionRefusal(own, { name: "the server", versions });
      return message === null ? null : { code: "version", message };
    } catch (error) {
      return { code: "invalid", message: messageOf(error) };
    }
  }

  async #connect({ request, response, parameters }: Exchange): Promise<void> {
    const machineId = parameters["id"] ?? "";
    await this.#options.fleet.find(machineId)?.access.switched;
    if (response.destroyed) return;
    const release = this.#dials.claim(machineId);
    if (release === null) {
      request.resume();
      return refuse(response, 503, this.#dials.limitReached(machineId));
    }
    response.once("close", release);
    const machine = this.#options.fleet.find(machineId);
    this.#exec(machineId, request, response, { connectsIn: { network: machine?.access.network ?? null } });
  }

  #exec(
    machineId: string,
    request: IncomingMessage,
    response: ServerResponse,
    more: Pick<LinkExecOptions, "connectsIn"> = {},
  ): void {
    const switched = this.#options.fleet.find(machineId)?.access.switched ?? null;
    // Its frames are read when another VMM has the guest.
    if (switched !== null) {
      void switched.then(() => (response.destroyed ? undefined : this.#exec(machineId, request, response, more)));
      return;
    }
    const guest = this.#guestOf(machineId, request, response);
    if (guest !== null) serveExec(request, response, { ...more, guest, ...this.#lookAt(machineId) });
  }

  async #terminal({ request, response, parameters }: Exchange): Promise<void> {
    const machineId = parameters["id"] ?? "";
    const { fleet } = this.#options;
    await fleet.find(machineId)?.access.switched;
    if (response.destroyed) return;
    const guest = this.#guestOf(machineId, request, response);
    const terminals = this.#terminals;
    if (guest !== null) serveTerminal(request, response, { machineId, terminals, guest, ...this.#lookAt(machineId) });
  }

  /** What commands and terminals see of their machine. */
  #lookAt(machineId: string): Required<Omit<LinkExecOptions, "guest" | "connectsIn">> {
    const { clock, fleet } = this.#options;
    return {
      clock,
      obstacle: () => fleet.find(machineId)?.access.obstacle ?? null,
      onSilent: (end) => fleet.find(machineId)?.access.onSilent(end) ?? (() => undefined),
      isStopping: () => this.#isStopping,
      isLeaving: () => fleet.find(machineId)?.access.isLeaving === true,
    };
  }

  async #file({ request, response, parameters }: Exchange): Promise<void> {
    const operation = LINK_FILE_OPERATIONS.find((each) => each === parameters["operation"]);
    if (operation === undefined) return refuseRoute(request, response);
    const { clock, temporaryDirectory, fleet } = this.#options;
    const machineId = parameters["id"] ?? "";
    await fleet.find(machineId)?.access.switched;
    const guest = this.#guestOf(machineId, request, response);
    if (guest === null) return;
    const obstacle = () => fleet.find(machineId)?.access.obstacle ?? null;
    const isSwitching = (): boolean => (fleet.find(machineId)?.access.switched ?? null) !== null;
    const options = { guest, clock, obstacle, isSwitching, hasRoom: () => hasRoom(temporaryDirectory) };
    await serveFile(request, response, operation, options);
  }

  /** null: the machine does not run here, and the request was refused. */
  #guestOf(machineId: string, request: IncomingMessage, response: ServerResponse): Guest | null {
    const machine = this.#options.fleet.find(machineId);
    const guest = machine?.access.guest ?? null;
    if (guest !== null) return guest;
    request.resume();
    const message = `machine ${machineId} ${machine === undefined ? "is not on this node" : "does not run"}`;
    refuse(response, machine === undefined ? 404 : 409, { code: "not_running", message });
    return null;
  }

  async #dial({ request, response, parameters }: Exchange): Promise<void> {
    const machineId = parameters["id"] ?? "";
    const port = whole(Number(parameters["port"]), "port", 1, 65_535);
    const machine = this.#options.fleet.find(machineId);
    const refusal = await this.#dials.serve(request, response, { machineId, port, machine });
    if (refusal === null || response.destroyed) return;
    const { status, ...error } = refusal;
    // Its body has no end.
    response.shouldKeepAlive = false;
    refuse(response, status, error);
  }

  async #readLogs({ response, query, parameters, signal }: Exchange): Promise<void> {
    const machineId = parameters["id"] ?? "";
    const machine = this.#options.fleet.find(machineId);
    if (machine === undefined)
      refuse(response, 404, { code: "not_found", message: `machine ${machineId} is not on this node` });
    else await serveLogs(response, machine.access.log, { wanted: parseLogsRequest(query), signal });
  }

  async #putMachine({ request, response, query, parameters, signal }: Exchange): Promise<void> {
    const machineId = parameters["id"] ?? "";
    const desired = desiredMachine(machineId, await readJson(request, this.#options.clock));
    const waitMs = Math.min(Math.max(Number(query.get("waitMs") ?? 0) || 0, 0), WAIT_MS_MAX);
    const { outcome, observed } = await this.#options.fleet.apply(machineId, desired, { waitMs, signal });
    sendJson(response, outcome === "stale" ? 409 : 200, observed);
  }

  async #replaceVmm({ request, response, parameters, signal }: Exchange): Promise<void> {
    const machineId = parameters["id"] ?? "";
    const { how } = readReplaceRequest(await readJson(request, this.#options.clock));
    const machine = this.#options.fleet.find(machineId);
    if (machine === undefined)
      return refuse(response, 404, { code: "not_found", message: `machine ${machineId} is not on this node` });
    const replaced = await this.#options.replacements.replace(machine, how, signal);
    sendJson(response, 200, { pauseMs: null, reason: null, ...replaced } satisfies ReplaceAnswer);
  }

  #refuse(request: IncomingMessage, response: ServerResponse, error: unknown): void {
    if (!request.complete) {
      // The rest of the body is discarded, so that the caller reads the answer.
      response.shouldKeepAlive = false;
      request.resume();
    }
    if (error instanceof FileFailure && !response.headersSent)
      return refuse(response, statusOfFailure(error.code), { code: error.code, message: error.message });
    const ofMove = response.headersSent ? null : refusalOf(error);
    if (ofMove !== null) return refuse(response, ofMove.status, ofMove.error);
    const isInvalid = error instanceof InvalidMessage || error instanceof SyntaxError;
    const hasFailed = !isInvalid && !(error instanceof CallerGone);
    if (hasFailed) this.#options.log.error({ error }, "a request on the link failed");
    if (response.headersSent) response.destroy();
    else
      refuse(response, isInvalid ? 400 : 500, {
        code: isInvalid ? "invalid" : codeOf(error),
        message: messageOf(error),
      });
  }
}

/** The body of a PUT for the machine of the path. Throws InvalidMessage. */
function desiredMachine(machineId: string, body: unknown): DesiredMachine {
  const desired = readDesiredMachine(body);
  if (desired.spec === null && desired.state !== "absent") throw new InvalidMessage("spec", `one for ${desired.state}`);
  if (desired.spec === null && !MACHINE_ID.test(machineId)) throw new InvalidMessage("id", "mach- and 32 hex digits");
  if (desired.spec !== null && desired.spec.machineId !== machineId)
    throw new InvalidMessage("spec.machineId", "the id of the path");
  return desired;
}

/** Whether a guest's write to its disk can be expected to fit. */
async function hasRoom(directory: string): Promise<boolean> {
  const { bavail, bsize } = await statfs(directory);
  return bavail * bsize >= FREE_BYTES_MIN;
}

const codeOf = (error: unknown): LinkError["code"] =>
  (error as NodeJS.ErrnoException | null)?.code === "ENOSPC" ? "no_space" : "internal";

function refuseRoute(request: IncomingMessage, response: ServerResponse): void {
  request.resume();
  refuse(response, 404, { code: "not_found", message: `no route ${request.method} ${request.url}` });
}

/**
 * `flotilla up`: a whole Flotilla on this machine, in the foreground: the server (with its database) and one
 * node, as two supervised programs.
 *
 * Start: address free and data directory usable → server ready → node ready → greeting. Stop (Ctrl-C,
 * SIGTERM, the terminal closing): the node, then the server, then exit code 0. A later signal hurries both:
 * requests are cut off and the database stops without its checkpoint, but nothing except machines keeps
 * running. Machines are not children of these programs and keep running.
 *
 * Always:
 * - If this process dies in any way, both programs see their channel close and end themselves.
 * - A database that does not answer for a while never ends this process.
 * - It continues, and stops in order, when its output cannot be written: its reader has ended, or the disk is
 *   full.
 * - On a terminal the programs' logs go to files, otherwise (a service manager) to this process's standard
 *   error.
 */
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { messageOf } from "@flotilla/base/errors";
import { settings } from "@flotilla/contract/settings";
import { Flotilla, FlotillaError } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { isFoundByDefault, resolveConnection } from "../connection.ts";
import { Failure, localFailure } from "../failure.ts";
import { addressText, besideForNodes, isFree, localUrl, requireFree } from "./address.ts";
import { readConfig, type UpConfig } from "./config.ts";
import { requireDirectory } from "./directory.ts";
import { greeting } from "./greeting.ts";
import {
  childEnvironment,
  E2B_MAIN,
  nodeLaunch,
  programCommand,
  programDirectories,
  ROOT,
  SERVER_MAIN,
} from "./launch.ts";
import { lastLines, openLog } from "./logs.ts";
import { Program, type ProgramSpec, type ReadyMessage } from "./program.ts";
import { AS_THIS_USER, endLast, type ServerLaunch, serverLaunch } from "./server-user.ts";
import { StopRequests } from "./stop-requests.ts";

const NODE_GRACE_MS = 20_000;
const E2B_GRACE_MS = 5_000;
const SERVER_GRACE_MS = 40_000;
const NODE_SEEN_MS = 15_000;
const NODE_SEEN_PERIOD_MS = 500;
/** The same once it takes long, as on a full disk: the server logs each look. */
const LACK_PERIOD_MS = 5_000;
const ANSWER_MS = 5_000;

export async function run(call: Call, _operands: readonly string[], options: Record<string, string | undefined>) {
  const up = new Up(call, readConfig(call.world.environment, options));
  call.world.continueWithoutOutput();
  const stopSignal = Promise.withResolvers<void>();
  const requests = new StopRequests();
  const ignoreSignals = call.world.onStopSignal(() => {
    if (requests.take(call.world.clock.monotonic()) === "insist") up.hurry();
    stopSignal.resolve();
  });
  try {
    await Promise.race([up.start(), stopSignal.promise]);
    await stopSignal.promise;
    call.output.line();
    call.output.note("stopping the node and the server; running machines keep running");
  } finally {
    await up.stop();
    ignoreSignals();
  }
}

type ProgramName = "server" | "node" | "e2b";

class Up {
  readonly #call: Call;
  readonly #config: UpConfig;
  readonly #joinToken = `join_${randomBytes(4).toString("hex")}_${randomBytes(32).toString("hex")}`;
  /** Null when logs go to standard error. */
  readonly #logDirectory: string | null;
  #asServer: ServerLaunch = AS_THIS_USER;
  #node: Program | null = null;
  #e2b: Program | null = null;
  #server: Program | null = null;
  #isStopping = false;

  constructor(call: Call, config: UpConfig) {
    this.#call = call;
    this.#config = config;
    this.#logDirectory = call.output.isWatched ? join(config.dataDirectory, "logs") : null;
  }

  /** Everything before the greeting. */
  async start(): Promise<void> {
    const { clock, environment, directory } = this.#call.world;
    const startedAt = clock.monotonic();
    await requireFree(this.#config.listen, clock);
    if (this.#isStopping) return;
    requireDirectory(this.#config.dataDirectory);
    this.#settleServerUser();
    const { uid } = this.#asServer;
    const serverUid = uid === null ? {} : { FLOTILLA_SERVER_UID: String(uid) };
    const nodeEnvironment = childEnvironment(this.#config.environment, "node", { ...this.#shared(), ...serverUid });
    // Before the server is started, because sudo may have to ask for a password.
    const launch = nodeLaunch({
      needsRoot: this.#config.driver === "qemu",
      dataDirectory: this.#config.dataDirectory,
      hasTerminal: this.#call.world.streams.input.isTTY === true,
    });
    const { url, nodeSocket, adminKey } = await this.#startServer();
    if (this.#isStopping) return;
    this.#node = this.#program("node", { ...launch({ ...nodeEnvironment, ...nodeSocket }, url), readyKind: "ready" });
    await this.#begin("node", this.#node);
    await this.#isServing(url);
    if (this.#isStopping) return;
    if (this.#config.e2bListen !== null) await this.#startE2b(url, this.#config.e2bListen);
    if (this.#isStopping) return;
    const lines = greeting({
      url,
      consoleUrl: await this.#consoleUrl(url),
      dataDirectory: this.#config.dataDirectory,
      logDirectory: this.#logDirectory,
      // Elsewhere the output may be stored, so the key is left out.
      newAdminKey: this.#call.world.streams.output.isTTY === true ? adminKey : null,
      startedInMs: clock.monotonic() - startedAt,
      launcher: `${ROOT}flotilla`,
      directory,
      isFoundByDefault: isFoundByDefault(environment, { url, dataDirectory: this.#config.dataDirectory }),
    });
    for (const line of lines) this.#call.output.line(line);
  }

  /** A one-time link to the console; null: there is no key to make it with, or the server refuses it. */
  async #consoleUrl(url: string): Promise<string | null> {
    const connection = resolveConnection(
      { [settings.serverUrl.env]: url, [settings.dataDirectory.env]: this.#config.dataDirectory },
      {},
    );
    if (connection.key === null) return null;
    const flotilla = new Flotilla({ url, apiKey: connection.key, timeoutMs: ANSWER_MS });
    const link = await flotilla.createConsoleLink().catch(() => null);
    return link && `${url}${link.path}`;
  }

  async stop(): Promise<void> {
    this.#isStopping = true;
    await this.#e2b?.stop(E2B_GRACE_MS);
    await this.#node?.stop(NODE_GRACE_MS);
    await this.#server?.stop(SERVER_GRACE_MS);
  }

  hurry(): void {
    this.#node?.hurry();
    this.#server?.hurry();
  }

  async #startServer(): Promise<{
    readonly url: string;
    readonly nodeSocket: Readonly<Record<string, string>>;
    readonly adminKey: string | null;
  }> {
    const { listen, environment } = this.#config;
    const own = {
      ...this.#shared(),
      ...this.#asServer.environment,
      ...(await this.#listensForNodes()),
      [settings.listen.env]: addressText(listen),
      [settings.expectsNode.env]: "1",
    };
    const [program, ...operands] = [...this.#asServer.prefix, ...programCommand(SERVER_MAIN)];
    this.#server = this.#program("server", {
      command: [program, ...operands],
      environment: childEnvironment(environment, "server", own),
      readyKind: "listening",
      hasOwnSession: true,
    });
    const ready = await this.#begin("server", this.#server);
    if (ready.kind !== "listening") throw new Error("the server sent another message than that it listens");
    const url = localUrl(ready.url);
    // A port chosen by the system is kept when the server restarts, because the node and users know it.
    const port = Number(new URL(url).port) || 80;
    this.#server.remember({ FLOTILLA_LISTEN: addressText({ host: listen.host, port }) });
    const nodeSocket: Record<string, string> =
      ready.nodeSocket === null ? {} : { [settings.nodeSocket.env]: ready.nodeSocket };
    return { url, nodeSocket, adminKey: ready.adminKey };
  }

  async #startE2b(url: string, listen: NonNullable<UpConfig["e2bListen"]>): Promise<void> {
    await requireFree(listen, this.#call.world.clock);
    const own = { ...this.#shared(), [settings.serverUrl.env]: url, [settings.e2bListen.env]: addressText(listen) };
    this.#e2b = this.#program("e2b", {
      command: programCommand(E2B_MAIN),
      environment: childEnvironment(this.#config.environment, "e2b", own),
      readyKind: "listening",
      hasOwnSession: true,
    });
    const ready = await this.#begin("e2b", this.#e2b);
    if (ready.kind === "listening") this.#call.output.note(`flotilla: E2B's clients are served at ${ready.url}`);
  }

  /**
   * Where the server listens for nodes of this host, unless that is configured. Not with the database of
   * several servers: what one announces there, nodes of all hosts connect to.
   */
  async #listensForNodes(): Promise<Readonly<Record<string, string>>> {
    const { listen, nodeListen, databaseUrl } = this.#config;
    const beside = nodeListen === null && databaseUrl === null ? besideForNodes(listen) : null;
    if (beside === null) return {};
    if (await isFree(beside)) return { [settings.nodeListen.env]: addressText(beside) };
    const text = `${addressText(beside)} is in use by another program, so no other node can join; choose another port with --node-listen`;
    this.#call.output.note(`flotilla: ${text}`);
    return {};
  }

  /** Root runs the server as another user, where the host allows it. */
  #settleServerUser(): void {
    if (process.getuid?.() !== 0) return;
    endLast();
    const { dataDirectory, listen } = this.#config;
    this.#asServer = serverLaunch({ dataDirectory, programDirectories: programDirectories(), port: listen.port });
    const { reason } = this.#asServer;
    if (reason !== null) this.#call.output.note(`flotilla: the server runs as root: ${reason}`);
  }

  /** The settings of both programs. */
  #shared(): Readonly<Record<string, string>> {
    return {
      FLOTILLA_DATA_DIR: this.#config.dataDirectory,
      FLOTILLA_CACHE_DIR: this.#config.cacheDirectory,
      FLOTILLA_JOIN_TOKEN: this.#joinToken,
    };
  }

  #program(name: ProgramName, spec: Omit<ProgramSpec, "name" | "log">): Program {
    const log = this.#logDirectory === null ? "inherit" : this.#openLog(this.#logDirectory, name);
    const report = (line: string): void => this.#call.output.note(`flotilla: ${line}`);
    return new Program({ ...spec, name: `the ${name}`, log }, { clock: this.#call.world.clock, report });
  }

  #openLog(directory: string, name: ProgramName): number {
    try {
      return openLog(directory, name, this.#call.world.clock);
    } catch (error) {
      throw localFailure(error, directory);
    }
  }

  async #begin(name: ProgramName, program: Program): Promise<ReadyMessage> {
    using _progress = this.#call.output.progress(`starting the ${name}`);
    try {
      return await program.start();
    } catch (error) {
      throw error instanceof Failure ? this.#explained(name, error.message) : error;
    }
  }

  /** With the program's last log lines, and where the log is. */
  #explained(name: ProgramName, what: string): Failure {
    if (this.#logDirectory === null) return new Failure(what, "see its messages above");
    const lines = lastLines(this.#logDirectory, name).join(" | ");
    return new Failure(`${what}; its last lines: ${lines}`, `its log is ${this.#logDirectory}/${name}.log`);
  }

  /** Waits until the server has its node and is ready, and says after a while what it lacks. */
  async #isServing(url: string): Promise<void> {
    using _progress = this.#call.output.progress("waiting for the node to register");
    const { clock } = this.#call.world;
    const flotilla = new Flotilla({ url, retries: 0 });
    const startedAt = clock.monotonic();
    let said = "";
    while (!this.#isStopping) {
      const lack = await lackOf(flotilla);
      if (lack === null) return;
      // Both programs run and keep trying, so they are not ended.
      if (lack !== said && clock.monotonic() - startedAt > NODE_SEEN_MS) {
        said = lack;
        this.#call.output.note(lack === NO_NODE ? this.#explained("node", lack).message : lack);
      }
      await clock.sleep(said === "" ? NODE_SEEN_PERIOD_MS : LACK_PERIOD_MS);
    }
  }
}

const NO_NODE = "the node has started, but the server does not see it";

/**
 * What keeps the server from serving machines now; null: nothing. It may not answer for a moment, for
 * instance while its database restarts.
 */
async function lackOf(flotilla: Flotilla): Promise<string | null> {
  try {
    if ((await flotilla.getHealth({ timeoutMs: ANSWER_MS })).nodesReady === 0) return NO_NODE;
    await flotilla.getReadiness({ timeoutMs: ANSWER_MS });
    return null;
  } catch (error) {
    return `the server is not ready yet: ${error instanceof FlotillaError ? error.text : messageOf(error)}`;
  }
}

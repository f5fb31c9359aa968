/**
 * The registry that this server runs itself: Debian's docker-registry, on a socket in the data directory.
 *
 * Owns `<data dir>/registry`: `storage/` with the blobs, `config.json` and `sock`.
 *
 * Always:
 * - It is started when this server starts, again when it ends, and ends with this server, however that ends.
 * - Only the server's user reaches the socket and the files.
 * - It keeps nothing in memory about blobs, so it notices what a collection has deleted.
 * - Without the program everything else of the server works.
 *
 * A crash leaves parts of uploads, which docker-registry deletes after a day.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { access, chmod, mkdir, readFile, rm, statfs, writeFile } from "node:fs/promises";
import { createConnection } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Clock } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";
import { Agent } from "undici";
import { type Backend, type BackendAnswer, type BackendRequest, sendOver } from "./backend.ts";

const PROGRAM = "docker-registry";
/** The kernel ends it with this server, however that ends. */
const WITH_PARENT = ["setpriv", "--pdeathsig=KILL", PROGRAM] as const;
const PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const CONNECTIONS_MAX = 128;
const LOOK_MS = 25;
const START_MS_MAX = 30_000;
const STOP_MS_MAX = 5_000;
const RETRY_MS = 500;
const RETRY_MS_MAX = 30_000;
/** A run of this length was no failed start. */
const STEADY_MS = 60_000;
const LINES_MAX = 20;
/** What stays free of its file system: a share of it, and no more than this. */
const FREE_SHARE = 0.05;
const FREE_BYTES = 2 * 1024 ** 3;
const MISSING =
  "packages need the program docker-registry; install the package docker-registry, then start the server again";
const STARTING = "the registry's storage does not run now; try again in a moment";

export interface EmbeddedOptions {
  readonly dataDirectory: string;
  readonly randomBytes: (size: number) => Buffer;
  readonly clock: Clock;
  readonly log: Log;
}

export class EmbeddedRegistry implements Backend {
  readonly #options: EmbeddedOptions;
  readonly #socket: string;
  readonly #configuration: string;
  readonly #storage: string;
  readonly #agent: Agent;
  readonly #stopping = new AbortController();
  #child: ChildProcess | null = null;
  #fault: string | null = STARTING;
  #running: Promise<void>;

  constructor(options: EmbeddedOptions) {
    this.#options = options;
    const directory = join(options.dataDirectory, "registry");
    this.#socket = join(directory, "sock");
    this.#configuration = join(directory, "config.json");
    this.#storage = join(directory, "storage");
    this.#agent = new Agent({ connections: CONNECTIONS_MAX, connect: { socketPath: this.#socket } });
    this.#running = this.#run().catch((error: unknown) => {
      this.#fault = STARTING;
      options.log.error({ error }, "the registry cannot be run");
    });
  }

  get fault(): string | null {
    return this.#fault;
  }

  urlOf(repository: string, path: string): URL {
    return new URL(`http://registry/v2/${repository}/${path}`);
  }

  mountUrl(repository: string, { digest, from }: { readonly digest: string; readonly from: string }): URL {
    return this.urlOf(repository, `blobs/uploads/?mount=${digest}&from=${from}`);
  }

  send(request: BackendRequest): Promise<BackendAnswer> {
    return sendOver(this.#agent, request);
  }

  async freeBytes(): Promise<number> {
    const { bavail, blocks, bsize } = await statfs(this.#storage);
    return bavail * bsize - Math.min(FREE_BYTES, blocks * bsize * FREE_SHARE);
  }

  readonly collect = async (signal: AbortSignal): Promise<number> => {
    // Before the first push there is nothing, which docker-registry takes for a fault.
    const isEmpty = await access(join(this.#storage, "docker/registry/v2/repositories")).then(
      () => false,
      () => true,
    );
    if (isEmpty) return 0;
    const child = this.#spawn(["garbage-collect", this.#configuration], "pipe");
    const [lines, deleted] = [[] as string[], new Set<string>()];
    const note = (line: string): void => {
      const digest = /blob eligible for deletion: (sha256:[0-9a-f]{64})/.exec(line)?.[1];
      if (digest !== undefined) deleted.add(digest);
      keepLast(lines, line);
    };
    for (const output of [child.stdout, child.stderr])
      if (output !== null) createInterface({ input: output }).on("line", note);
    const end = (): void => void child.kill("SIGKILL");
    signal.addEventListener("abort", end, { once: true });
    try {
      const [code] = (await once(child, "close")) as [number | null];
      signal.throwIfAborted();
      if (code !== 0) throw new Error(`docker-registry could not collect: ${lines.join(" | ")}`);
      return deleted.size;
    } finally {
      signal.removeEventListener("abort", end);
    }
  };

  async stop(): Promise<void> {
    this.#stopping.abort();
    const child = this.#child;
    if (child !== null) {
      const ended = once(child, "exit");
      const late = this.#options.clock.timer(STOP_MS_MAX, () => void child.kill("SIGKILL"));
      child.kill("SIGTERM");
      await ended;
      late.cancel();
    }
    await this.#running;
    await this.#agent.destroy();
  }

  /** Runs it until this server stops. */
  async #run(): Promise<void> {
    const { clock, log } = this.#options;
    await this.#write();
    let waitMs = RETRY_MS;
    while (!this.#stopping.signal.aborted) {
      const startedAt = clock.monotonic();
      const reason = await this.#runOnce();
      if (this.#stopping.signal.aborted) return;
      if (reason === null) {
        this.#fault = MISSING;
        log.info({}, "docker-registry is not installed, so there are no packages");
        return;
      }
      this.#fault = STARTING;
      waitMs = clock.monotonic() - startedAt > STEADY_MS ? RETRY_MS : Math.min(RETRY_MS_MAX, waitMs * 2);
      log.warn({ reason, waitMs }, "docker-registry has ended and is started again");
      await clock.sleep(waitMs, this.#stopping.signal);
    }
  }

  /** Resolves when it has ended, with why; null: there is no such program. */
  async #runOnce(): Promise<string | null> {
    await rm(this.#socket, { force: true });
    const child = this.#spawn(["serve", this.#configuration], "ignore");
    const lines: string[] = [];
    if (child.stderr !== null) createInterface({ input: child.stderr }).on("line", (line) => keepLast(lines, line));
    this.#child = child;
    const ended = new AbortController();
    const exit = new Promise<string | null>((resolve) => {
      child.once("error", (error: NodeJS.ErrnoException) => resolve(error.message));
      // 127: setpriv has not found it.
      child.once("exit", (code, signal) =>
        resolve(code === 127 ? null : `${signal ?? `status ${code}`}: ${lines.join(" | ")}`),
      );
    }).finally(() => {
      ended.abort();
      this.#child = null;
    });
    if (this.#stopping.signal.aborted) child.kill("SIGKILL");
    await this.#awaitSocket(ended.signal, child);
    return await exit;
  }

  async #awaitSocket(ended: AbortSignal, child: ChildProcess): Promise<void> {
    const { clock, log } = this.#options;
    const deadline = clock.monotonic() + START_MS_MAX;
    while (!ended.aborted) {
      if (await answers(this.#socket)) {
        await chmod(this.#socket, 0o600).catch(() => undefined);
        this.#fault = null;
        log.debug({ socket: this.#socket }, "docker-registry runs");
        return;
      }
      if (clock.monotonic() > deadline) return void child.kill("SIGKILL");
      await clock.sleep(LOOK_MS, ended);
    }
  }

  async #write(): Promise<void> {
    await mkdir(this.#storage, { recursive: true, mode: 0o700 });
    const configuration = {
      version: "0.1",
      log: { level: "error", formatter: "json", accesslog: { disabled: true } },
      storage: {
        filesystem: { rootdirectory: this.#storage },
        delete: { enabled: true },
        maintenance: { uploadpurging: { enabled: true, age: "24h", interval: "1h", dryrun: false } },
      },
      http: { net: "unix", addr: this.#socket, relativeurls: true, secret: await this.#secret() },
    };
    // JSON is YAML.
    await rm(this.#configuration, { force: true });
    await writeFile(this.#configuration, JSON.stringify(configuration), { mode: 0o600 });
  }

  /** Signs where uploads continue, so it is the same after a restart. */
  async #secret(): Promise<string> {
    try {
      const text = await readFile(this.#configuration, "utf8");
      const { http } = JSON.parse(text) as { http: { secret: string } };
      if (/^[0-9a-f]{64}$/.test(http.secret)) return http.secret;
    } catch {
      // There is none yet, or a crash has left a part of one.
    }
    return this.#options.randomBytes(32).toString("hex");
  }

  #spawn(args: readonly string[], stdout: "ignore" | "pipe"): ChildProcess {
    const [program, ...before] = WITH_PARENT;
    return spawn(program, [...before, ...args], {
      stdio: ["ignore", stdout, "pipe"],
      // Keys in a terminal end this server, which then ends it.
      detached: true,
      env: { PATH, OTEL_TRACES_EXPORTER: "none" },
    });
  }
}

function keepLast(lines: string[], line: string): void {
  lines.push(line.slice(0, 500));
  if (lines.length > LINES_MAX) lines.shift();
}

/** Whether a program listens on the socket. */
const answers = (path: string): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = createConnection(path);
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => resolve(false));
  });

/**
 * A whole Flotilla for a benchmark: `flotilla up` as a user starts it, with its own data directory and a port
 * chosen by the system, used through the SDK; or, where FLOTILLA_URL and FLOTILLA_API_KEY name one, that.
 *
 * Always:
 * - Logs are quiet, so that writing them is not measured.
 * - `stop` leaves machines running, as it does for users, and another `start` on the same directory adopts
 *   them.
 * - `remove` deletes all machines that were made here, and the directory.
 * - In an existing Flotilla only machines with this run's label are touched.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, readFile, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { mapAtMost } from "@flotilla/base/concurrency";
import { type CreateMachineRequest, Flotilla, type MachineInfo } from "@flotilla/sdk/client";
import { findVmms, type FoundVmm } from "../../node/src/driver/qemu/processes.ts";
import { monotonic, sleep } from "./clock.ts";
import { removeOnInterrupt } from "./interrupt.ts";

export const IMAGE = "local/busybox";

const LAUNCHER = path.resolve(import.meta.dirname, "../../flotilla");
const START_DEADLINE_MS = 120_000;
const LABEL = "flotilla-bench";
const POLL_MS = 250;
/** After this long without a new one the node has prepared as many as it will. It checks every 2 s. */
const SETTLED_MS = 5_000;
/** The most time for preparing one. */
const PREPARE_MS = 4_000;
/** The most time for making the template that they are restored from. */
const TEMPLATE_MS = 90_000;
/** Time for preparing VMs of an existing Flotilla, whose prepared VMs cannot be seen. */
const BLIND_MS = 30_000;
const GONE_DEADLINE_MS = 60_000;
const AT_ONCE = 4;
/** A node prepares as many VMs as are needed at once. A small host has the memory for these. */
const WARM_UP_AT_ONCE = 20;

export interface BenchFlotillaOptions {
  readonly driver: "qemu" | "fake";
  /** Additional settings. */
  readonly environment?: Readonly<Record<string, string>>;
  /** The program `flotilla` of another checkout. */
  readonly launcher?: string;
}

/** A machine, and how long its creation, start and first answer took. */
export interface Made {
  readonly machine: MachineInfo;
  readonly createdMs: number;
  readonly startedMs: number;
  readonly answeredMs: number;
}

export class BenchFlotilla implements AsyncDisposable {
  readonly dataDirectory: string;
  readonly #driver: "qemu" | "fake";
  readonly #environment: Readonly<Record<string, string>>;
  readonly #launcher: string;
  readonly #attached: { readonly url: string; readonly apiKey: string } | null;
  #process: ChildProcess | null = null;
  #client: Flotilla | null = null;
  #url = "";
  #apiKey = "";
  #removing: Promise<void> | null = null;
  readonly #forget: () => void;

  private constructor(dataDirectory: string, { driver, environment = {}, launcher = LAUNCHER }: BenchFlotillaOptions) {
    this.dataDirectory = dataDirectory;
    this.#driver = driver;
    this.#environment = environment;
    this.#launcher = launcher;
    this.#attached = driver === "qemu" ? attachedTo() : null;
    this.#forget = removeOnInterrupt(() => this[Symbol.asyncDispose]());
  }

  /** With the fake driver it always starts its own. */
  static async start(options: BenchFlotillaOptions): Promise<BenchFlotilla> {
    const made = await mkdtemp(path.join(tmpdir(), "flotilla-bench-"));
    const flotilla = new BenchFlotilla(await realpath(made), options);
    try {
      await flotilla.start();
    } catch (error) {
      await flotilla.#removeAll();
      throw error;
    }
    return flotilla;
  }

  get client(): Flotilla {
    if (this.#client === null) throw new Error("the benchmark's Flotilla has not been started");
    return this.#client;
  }

  /** Access for a client that is not the SDK. */
  get access(): { readonly url: string; readonly headers: Readonly<Record<string, string>> } {
    return { url: this.#url, headers: { authorization: `Bearer ${this.#apiKey}`, "content-type": "application/json" } };
  }

  /** Access for a client of another program. */
  get connection(): { readonly url: string; readonly apiKey: string } {
    return { url: this.#url, apiKey: this.#apiKey };
  }

  /** Whether this run started it, so that its directories and processes may be inspected. */
  get isOwn(): boolean {
    return this.#attached === null;
  }

  /** Throws for a benchmark that inspects more than the API. */
  requireOwn(): void {
    if (!this.isOwn) throw new Error("this benchmark looks at processes and files: run it without FLOTILLA_URL");
  }

  async start(): Promise<void> {
    if (this.#attached !== null) {
      this.#url = this.#attached.url;
      this.#apiKey = this.#attached.apiKey;
    } else {
      const flags = ["--listen", "127.0.0.1:0", "--data-dir", this.dataDirectory, "--log-level", "error"];
      const args = ["up", ...flags, "--driver", this.#driver];
      // A Ctrl-C must not reach it, because it would leave its machines running.
      const env = { ...process.env, ...this.#environment };
      const child = spawn(this.#launcher, args, { env, stdio: ["ignore", "pipe", "inherit"], detached: true });
      this.#process = child;
      this.#url = await this.#urlOf(child, AbortSignal.timeout(START_DEADLINE_MS));
      this.#apiKey = (await readFile(path.join(this.dataDirectory, "admin.key"), "utf8")).trim();
    }
    this.#client = new Flotilla({ url: this.#url, apiKey: this.#apiKey, retries: 0 });
  }

  async stop(): Promise<void> {
    const child = this.#process;
    this.#process = null;
    this.#client = null;
    if (child === null || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, "exit");
    child.kill("SIGTERM");
    await ended;
  }

  /** Deletes every machine of this run and everything else. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#removing ??= this.#remove();
    await this.#removing;
  }

  async #remove(): Promise<void> {
    if (this.#client === null) await this.start();
    const mine = await this.client.listMachines({ query: { label: [`${LABEL}=${process.pid}`], limit: 1000 } });
    await inTurns(mine, ({ id }) => this.client.deleteMachine(id));
    if (this.isOwn) await this.#untilGone();
    await this.#removeAll();
  }

  /** A delete is answered before the node has finished it. */
  async #untilGone(): Promise<void> {
    const deadline = monotonic() + GONE_DEADLINE_MS;
    while ((await this.machineVmms()).length > 0 && monotonic() < deadline) await sleep(POLL_MS);
  }

  async #removeAll(): Promise<void> {
    this.#forget();
    await this.stop();
    // Without its directory a remaining VMM could not be found any more.
    for (const { pid } of await findVmms(path.join(this.dataDirectory, "node"))) process.kill(pid, "SIGKILL");
    await rm(this.dataDirectory, { recursive: true, force: true });
  }

  /** A machine of the default size unless the request says otherwise. */
  async create(request: Partial<CreateMachineRequest> = {}): Promise<MachineInfo> {
    const source = { type: "image", reference: IMAGE } as const;
    return await this.client.createMachine({ source, labels: { [LABEL]: String(process.pid) }, ...request });
  }

  /** Create, start and first exec, with their times. */
  async make(): Promise<Made> {
    const startedAt = monotonic();
    const { id } = await this.create();
    const createdMs = monotonic() - startedAt;
    const machine = await this.client.startMachine(id);
    const startedMs = monotonic() - startedAt;
    await this.execTrue(id);
    return { machine, createdMs, startedMs, answeredMs: monotonic() - startedAt };
  }

  async execTrue(id: string): Promise<void> {
    const { exitCode } = await this.client.exec(id, { command: ["true"] });
    if (exitCode !== 0) throw new Error(`exec of true ended with ${exitCode}`);
  }

  /**
   * Makes and removes as many machines, WARM_UP_AT_ONCE at the same time, so that the node sees the demand,
   * then waits until as many VMs are prepared, or until the node prepares no more. Returns how many are
   * prepared; null where that cannot be seen.
   */
  async warmUp(count: number): Promise<number | null> {
    await mapAtMost(WARM_UP_AT_ONCE, Array.from({ length: count }), async () => {
      const { machine } = await this.make();
      await this.client.deleteMachine(machine.id);
    });
    return await this.untilPrepared(count);
  }

  async untilPrepared(count: number): Promise<number | null> {
    if (!this.isOwn) {
      await sleep(BLIND_MS);
      return null;
    }
    const deadline = monotonic() + TEMPLATE_MS + count * PREPARE_MS;
    let [most, since] = [0, monotonic()];
    for (;;) {
      // A VM has its directory while it is being prepared, even while its template is made.
      const waiting = (await this.#hasTemplate()) ? (await this.#preparedNames()).length : 0;
      const now = monotonic();
      if (waiting !== most) [most, since] = [waiting, now];
      if ((most > 0 && now - since > SETTLED_MS) || now > deadline) return most;
      await sleep(POLL_MS);
    }
  }

  /** Waits until the image has a template, which only emulation makes; not forever where it makes none. */
  async untilImageHasTemplate(): Promise<void> {
    const deadline = monotonic() + BLIND_MS;
    while (!(await this.#hasTemplate(/-disk-[^.]*$/)) && monotonic() < deadline) await sleep(POLL_MS);
  }

  /**
   * Waits until one VM is prepared, for as long as preparing some takes. One may still be in preparation, so
   * it waits for two directories.
   */
  async untilOneWaits(): Promise<void> {
    const deadline = monotonic() + SETTLED_MS + 2 * PREPARE_MS;
    while (this.isOwn && (await this.#preparedNames()).length < 2 && monotonic() < deadline) await sleep(POLL_MS);
  }

  /** The VMM processes of machines, without prepared VMs. */
  async machineVmms(): Promise<readonly FoundVmm[]> {
    const waiting = await this.#preparedNames();
    const all = await findVmms(path.join(this.dataDirectory, "node"));
    return all.filter(({ bootId }) => !waiting.some((name) => bootId.startsWith(`boot-${name}`)));
  }

  /** The process that serves the API, or the node agent. */
  async pidOf(program: "server" | "node"): Promise<number> {
    this.requireOwn();
    const up = this.#process?.pid ?? 0;
    const children = (await readFile(`/proc/${up}/task/${up}/children`, "utf8")).trim().split(" ").map(Number);
    for (const pid of children)
      if ((await readFile(`/proc/${pid}/cmdline`, "utf8")).includes(`${program}/src/main.ts`)) return pid;
    throw new Error(`the benchmark's Flotilla runs no ${program}`);
  }

  /**
   * Removes the default plan's limits, which a load would measure otherwise. Only for a Flotilla of this run.
   */
  async liftLimits(): Promise<void> {
    if (!this.isOwn) return;
    const [rate, total] = [1_000_000, 1_000_000_000];
    await this.client.createPlan({
      name: LABEL,
      isDefault: true,
      rateRequestsPerSecond: rate,
      rateBurst: rate,
      maxMachines: 10_000,
      maxConcurrentMachines: 10_000,
      maxTotalCpus: total,
      maxTotalMemoryMb: total,
      maxTotalDiskGb: total,
    });
  }

  /** One directory for each VM that is prepared or being prepared. */
  async #preparedNames(): Promise<readonly string[]> {
    return await readdir(path.join(this.dataDirectory, "node", "prepared")).catch(() => []);
  }

  async #hasTemplate(pattern = /^[^.]*$/): Promise<boolean> {
    const names = await readdir(path.join(this.dataDirectory, "node", "templates")).catch(() => []);
    return names.some((name) => pattern.test(name));
  }

  /** Reads the greeting up to the address, and keeps reading, so that the pipe never fills. */
  async #urlOf(child: ChildProcess, deadline: AbortSignal): Promise<string> {
    if (child.stdout === null) throw new Error("the benchmark's Flotilla has no output");
    const lines = createInterface({ input: child.stdout });
    return await new Promise((resolve, reject) => {
      const fail = (why: string) => () => reject(new Error(`flotilla up did not start: ${why}`));
      deadline.addEventListener("abort", fail(`no greeting within ${START_DEADLINE_MS / 1000} s`));
      child.once("exit", fail("it ended; its messages are above"));
      child.once("error", reject);
      lines.on("line", (line) => {
        const url = /^Flotilla runs at (\S+)/.exec(line)?.[1];
        if (url !== undefined) resolve(url);
      });
    });
  }
}

/** Does the work for each item, a few concurrently. */
async function inTurns<T>(items: readonly T[], work: (item: T) => Promise<unknown>): Promise<void> {
  const left = items.values();
  const worker = async (): Promise<void> => {
    for (const item of left) await work(item);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

function attachedTo(): { readonly url: string; readonly apiKey: string } | null {
  const { FLOTILLA_URL: url, FLOTILLA_API_KEY: apiKey } = process.env;
  if (!url) return null;
  if (!apiKey) throw new Error("FLOTILLA_URL is set and FLOTILLA_API_KEY is not: set both or neither");
  return { url, apiKey };
}

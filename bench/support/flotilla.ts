/**
 * A whole Flotilla for a benchmark: `flotilla up` as a user starts it, on a data directory of its own and a port that the
 * system chooses, spoken to through the SDK.
 *
 * Always: quiet logs, so that writing them is not measured. `stop` leaves machines running, as it does for users, and
 * another `start` on the same directory takes them up again; `remove` deletes all machines and the directory.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { Flotilla } from "@flotilla/sdk/client";

const LAUNCHER = path.resolve(import.meta.dirname, "../../flotilla");
const START_DEADLINE_MS = 120_000;

export class BenchFlotilla {
  readonly dataDirectory: string;
  #process: ChildProcess | null = null;
  #client: Flotilla | null = null;

  private constructor(dataDirectory: string) {
    this.dataDirectory = dataDirectory;
  }

  static async create(): Promise<BenchFlotilla> {
    return new BenchFlotilla(await mkdtemp(path.join(tmpdir(), "flotilla-bench-")));
  }

  get client(): Flotilla {
    if (this.#client === null) throw new Error("the benchmark's Flotilla has not been started");
    return this.#client;
  }

  async start(): Promise<void> {
    const flags = ["--listen", "127.0.0.1:0", "--data-dir", this.dataDirectory, "--log-level", "error"];
    const child = spawn(LAUNCHER, ["up", ...flags], { stdio: ["ignore", "pipe", "inherit"] });
    this.#process = child;
    const url = await this.#urlOf(child, AbortSignal.timeout(START_DEADLINE_MS));
    const apiKey = (await readFile(path.join(this.dataDirectory, "admin.key"), "utf8")).trim();
    this.#client = new Flotilla({ url, apiKey, retries: 0 });
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

  /** Deletes every machine and everything else. */
  async remove(): Promise<void> {
    if (this.#client === null) await this.start();
    for (const { id } of await this.client.listMachines()) await this.client.deleteMachine(id);
    await this.stop();
    await rm(this.dataDirectory, { recursive: true, force: true });
  }

  /** Reads the greeting up to the address; goes on reading, so that the pipe never fills. */
  async #urlOf(child: ChildProcess, deadline: AbortSignal): Promise<string> {
    if (child.stdout === null) throw new Error("the benchmark's Flotilla has no output");
    const lines = createInterface({ input: child.stdout });
    return await new Promise((resolve, reject) => {
      const giveUp = (why: string) => () => reject(new Error(`flotilla up did not start: ${why}`));
      deadline.addEventListener("abort", giveUp(`no greeting within ${START_DEADLINE_MS / 1000} s`));
      child.once("exit", giveUp("it ended; its messages stand above"));
      child.once("error", reject);
      lines.on("line", (line) => {
        const url = /^Flotilla runs at (\S+)/.exec(line)?.[1];
        if (url !== undefined) resolve(url);
      });
    });
  }
}

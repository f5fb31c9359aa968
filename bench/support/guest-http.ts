/**
 * The small web server of guest-http.c, and requests to it by one of several ways that take turns.
 *
 * Always: both ways are asked with kept-alive connections; an answer other than 200 ends the benchmark.
 */
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { monotonic, sleep } from "./clock.ts";
import type { BenchFlotilla } from "./flotilla.ts";
import { processorMs } from "./host.ts";
import { get } from "./get.ts";
import { askFor, type Question } from "./load.ts";

const SOURCE = path.join(import.meta.dirname, "guest-http.c");
export const CONNECTIONS = 16;
export const TURN_MS = 2_000;
/** Emulated code is translated when it first runs, and ours is compiled when it has run often. */
const WARM_UP_MS = 6_000;
const READY_DEADLINE_MS = 60_000;

/** Compiled for this host. */
export async function guestProgram(): Promise<Buffer> {
  const directory = await mkdtemp(path.join(tmpdir(), "flotilla-guest-http-"));
  const output = path.join(directory, "guest-http");
  try {
    const flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-static", "-s"];
    await promisify(execFile)(process.env["CC"] ?? "cc", [...flags, "-o", output, SOURCE]);
    return await readFile(output);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/** Makes the image of an app from it, with nothing else in it. Returns its reference. */
export async function importGuestImage({ client }: BenchFlotilla): Promise<string> {
  const reference = "local/guest-http";
  const directory = await mkdtemp(path.join(tmpdir(), "flotilla-guest-image-"));
  try {
    const program = path.join(directory, "guest-http");
    await writeFile(program, await guestProgram(), { mode: 0o755 });
    const layout = path.join(directory, "layout");
    const image = ["--image", `${layout}:latest`];
    for (const args of [
      ["init", "--layout", layout],
      ["new", ...image],
      ["insert", "--rootless", ...image, program, "/guest-http"],
      ["config", ...image, "--config.entrypoint", "/guest-http", "--config.exposedports", "80"],
    ])
      await promisify(execFile)("umoci", args);
    const archive = path.join(directory, "layout.tar");
    await promisify(execFile)("tar", ["-C", layout, "-cf", archive, "."]);
    await client.importImage(await readFile(archive), { query: { reference } });
    return reference;
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/** One way to the machine's port, and its results. */
export class Side {
  readonly aloneMs: number[] = [];
  readonly loadedMs: number[] = [];
  readonly #question: Question;
  readonly #pids: readonly number[];
  readonly #rates: number[] = [];
  #processorMs: readonly number[] = [];

  constructor(question: Question, pids: readonly number[]) {
    this.#question = question;
    this.#pids = pids;
    this.#processorMs = pids.map(() => 0);
  }

  /** Waits until the web server answers, then sends requests until the code is warm. */
  async warmUp(): Promise<void> {
    const deadline = monotonic() + READY_DEADLINE_MS;
    const { url, path: where, headers } = this.#question;
    for (;;) {
      if ((await get(url + where, headers))?.text === "ok") break;
      if (monotonic() > deadline) throw new Error(`the machine's web server does not answer at ${url}${where}`);
      await sleep(100);
    }
    await this.#ask(CONNECTIONS, WARM_UP_MS);
    await this.#ask(1, TURN_MS);
  }

  async take(): Promise<void> {
    for (const ms of await this.#ask(1, TURN_MS)) this.aloneMs.push(ms);
    const before = await Promise.all(this.#pids.map(processorMs));
    const latenciesMs = await this.#ask(CONNECTIONS, TURN_MS);
    const after = await Promise.all(this.#pids.map(processorMs));
    this.#processorMs = this.#processorMs.map((ms, at) => ms + (after[at] ?? 0) - (before[at] ?? 0));
    this.#rates.push((latenciesMs.length * 1000) / TURN_MS);
    for (const ms of latenciesMs) this.loadedMs.push(ms);
  }

  /** The median over the turns. */
  get rate(): number {
    return this.#rates.toSorted((one, two) => one - two)[Math.floor(this.#rates.length / 2)] ?? Number.NaN;
  }

  /** Processor time of each process per answer. */
  get processorTime(): string {
    return this.#processorMs.map((ms) => `${((ms * 1000) / this.loadedMs.length).toFixed(0)} µs`).join(" and ");
  }

  async #ask(connections: number, forMs: number): Promise<readonly number[]> {
    const { latenciesMs, failed } = await askFor(this.#question, { connections, forMs });
    if (failed > 0) throw new Error(`${failed} of ${failed + latenciesMs.length} requests were not answered with 200`);
    return latenciesMs;
  }
}

/**
 * What access by a machine's address adds: requests to a small web server in a real machine by its public URL
 * (server, link, node agent), against the same requests to the same port dialed on the node, in the same run.
 *
 * The node publishes the port on loopback for the second half, so both go through the node agent; the clients
 * keep their connections alive on both sides. The two alternate.
 */
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { monotonic, sleep } from "./support/clock.ts";
import { BenchFlotilla, IMAGE } from "./support/flotilla.ts";
import { processorMs } from "./support/host.ts";
import { askFor, type Question } from "./support/load.ts";
import type { Finding } from "./support/report.ts";
import { summarize } from "./support/statistics.ts";

const SOURCE = path.join(import.meta.dirname, "support/guest-http.c");
const CONNECTIONS = 16;
const TURN_MS = 2_000;
/** Emulated code is translated when it first runs, and ours is compiled when it has run often. */
const WARM_UP_MS = 6_000;
const READY_DEADLINE_MS = 60_000;

/** Takes n turns of each. */
export async function ingress(n: number): Promise<Finding> {
  const program = await guestProgram();
  await using flotilla = await BenchFlotilla.start({
    driver: "qemu",
    environment: { FLOTILLA_PUBLISH_ON_LOOPBACK: "yes" },
  });
  flotilla.requireOwn();
  await flotilla.liftLimits();
  await flotilla.untilPrepared(1);
  const { id } = await flotilla.create({ ports: [{ port: 80 }], public: true });
  await flotilla.client.startMachine(id);
  await flotilla.client.putFileAt(id, "workspace/guest-http", program);
  const command = "chmod +x /workspace/guest-http && exec /workspace/guest-http";
  await flotilla.client.exec(id, { command: ["sh", "-c", command], background: true });
  const { ports } = await flotilla.client.getMachine(id);
  const hostPort = ports[0]?.hostPort ?? null;
  if (hostPort === null) throw new Error("the node does not publish the machine's port on loopback");
  // Preparing a VM meanwhile would be measured too.
  await flotilla.untilPrepared(1);

  const common = { method: "GET", headers: {}, body: "" } as const;
  const [server, node] = [await flotilla.pidOf("server"), await flotilla.pidOf("node")];
  const ours = new Side({ ...common, url: flotilla.access.url, path: `/proxy/${id}/` }, [server, node]);
  const direct = new Side({ ...common, url: `http://127.0.0.1:${hostPort}`, path: "/" }, [server, node]);
  for (const side of [ours, direct]) await side.warmUp();
  for (let turn = 0; turn < n; turn++) for (const side of [ours, direct]) await side.take();
  const [alone, bare] = [summarize(ours.aloneMs), summarize(direct.aloneMs)];
  const [loaded, bareLoaded] = [summarize(ours.loadedMs), summarize(direct.loadedMs)];
  const ratio = ours.rate / direct.rate;
  return {
    name: "ingress",
    series: [
      { what: "GET by the machine's URL, one by one", summary: alone },
      { what: "GET on the node, one by one", summary: bare, isBaseline: true },
      { what: `GET by the machine's URL, ${CONNECTIONS} at once`, summary: loaded },
      { what: `GET on the node, ${CONNECTIONS} at once`, summary: bareLoaded },
    ],
    reaches: [],
    setting: { image: IMAGE, size: "default", connections: CONNECTIONS, turns: n, "seconds a turn": TURN_MS / 1000 },
    notes: [
      `added, one by one: p50 ${(alone.p50Ms - bare.p50Ms).toFixed(2)} ms, p99 ${(alone.p99Ms - bare.p99Ms).toFixed(2)} ms`,
      `added, ${CONNECTIONS} at once: p50 ${(loaded.p50Ms - bareLoaded.p50Ms).toFixed(2)} ms, p99 ${(loaded.p99Ms - bareLoaded.p99Ms).toFixed(2)} ms`,
      `by the URL ${Math.round(ours.rate)} per second, on the node ${Math.round(direct.rate)} per second, ratio ${ratio.toFixed(3)}`,
      `processor time for each, server and node agent: by the URL ${ours.processorTime}, on the node ${direct.processorTime}`,
    ],
  };
}

async function guestProgram(): Promise<Buffer> {
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

/** One way to the machine's port, and its results. */
class Side {
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
    const { url, path: where } = this.#question;
    for (;;) {
      const answer = await fetch(url + where).catch(() => null);
      if ((await answer?.text()) === "ok") break;
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

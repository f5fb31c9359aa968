/**
 * The throughput of one server process: execs of machines without a VM (the fake driver) and reads of a
 * machine, each against node:http and the same router with an empty handler.
 *
 * Ours and the empty one alternate every few seconds in the same run; rates are the median of the turns.
 * Before that each is called until its code is fully compiled. The processor time of each answer is printed
 * as well: it depends less than the rate on the host's other load.
 */
import { BenchFlotilla } from "./support/flotilla.ts";
import { startEmptyHttp } from "./support/empty-http.ts";
import { processorMs } from "./support/host.ts";
import { askFor, type Answered, type Question } from "./support/load.ts";
import type { Finding } from "./support/report.ts";
import { atLeast, type Reach, summarize } from "./support/statistics.ts";

const CONNECTIONS = 32;
const TURN_MS = 2_000;
/** A server counts as warm after this many answers, or after this time. */
const WARM_ANSWERS = 20_000;
const WARM_TURNS_MAX = 10;

interface Load {
  readonly name: string;
  readonly what: string;
  readonly question: (id: string) => Pick<Question, "method" | "path" | "body">;
  readonly reach: (ours: number, empty: number) => Reach;
}

const EXEC: Load = {
  name: "exec-throughput",
  what: "exec `true` with the fake driver",
  question: (id) => ({ method: "POST", path: `/v1/machines/${id}/exec`, body: '{"command":["true"]}' }),
  reach: (ours) => atLeast("execs per second", ours, 3_000),
};

const READ: Load = {
  name: "read",
  what: "GET /v1/machines/{id}",
  question: (id) => ({ method: "GET", path: `/v1/machines/${id}`, body: "" }),
  reach: (ours, empty) => atLeast("of what the empty handler serves", (ours / empty) * 100, 60, "%"),
};

/** Takes n turns of each. */
export const execThroughput = (n: number): Promise<Finding> => measure(EXEC, n);
export const read = (n: number): Promise<Finding> => measure(READ, n);

async function measure({ name, what, question, reach }: Load, turns: number): Promise<Finding> {
  await using flotilla = await BenchFlotilla.start({ driver: "fake" });
  await using empty = await startEmptyHttp();
  await flotilla.liftLimits();
  const { machine } = await flotilla.make();
  const { url, headers } = flotilla.access;
  const asked = question(machine.id);
  const ours = new Side({ url, headers, ...asked }, await flotilla.pidOf("server"));
  const other = new Side({ url: empty.url, headers, ...asked }, empty.pid);
  for (const side of [ours, other]) await side.warmUp();
  for (let turn = 0; turn < turns; turn++) for (const side of [ours, other]) await side.take();
  const [oursRate, emptyRate] = [ours.rate, other.rate];
  const alone = summarize(await ours.oneByOne());
  return {
    name,
    series: [
      { what, summary: summarize(ours.latenciesMs) },
      {
        what: "empty handler",
        summary: summarize(other.latenciesMs),
        isBaseline: true,
      },
    ],
    reaches: [reach(oursRate, emptyRate)],
    setting: { connections: CONNECTIONS, turns, "seconds a turn": TURN_MS / 1000 },
    notes: [
      `ours ${Math.round(oursRate)} per second, empty handler ${Math.round(emptyRate)} per second, ratio ${(oursRate / emptyRate).toFixed(3)}`,
      `processor time of the server's process for each: ours ${ours.processorMicros.toFixed(0)} µs, empty handler ${other.processorMicros.toFixed(0)} µs`,
      `ours one by one, on one connection: p50 ${alone.p50Ms.toFixed(2)} ms, p99 ${alone.p99Ms.toFixed(2)} ms`,
    ],
  };
}

/** One of the two servers, and its answers. */
class Side {
  readonly latenciesMs: number[] = [];
  readonly #question: Question;
  readonly #pid: number;
  readonly #rates: number[] = [];
  #processorMs = 0;

  constructor(question: Question, pid: number) {
    this.#question = question;
    this.#pid = pid;
  }

  async warmUp(): Promise<void> {
    let answers = 0;
    for (let turn = 0; turn < WARM_TURNS_MAX && answers < WARM_ANSWERS; turn++)
      answers += (await this.#ask()).latenciesMs.length;
  }

  async take(): Promise<void> {
    const before = await processorMs(this.#pid);
    const { perSecond, latenciesMs } = await this.#ask();
    this.#processorMs += (await processorMs(this.#pid)) - before;
    this.#rates.push(perSecond);
    for (const ms of latenciesMs) this.latenciesMs.push(ms);
  }

  /** The latencies of answers when one request is made at a time. */
  async oneByOne(): Promise<readonly number[]> {
    return (await this.#ask(1)).latenciesMs;
  }

  get rate(): number {
    return this.#rates.toSorted((one, two) => one - two)[Math.floor(this.#rates.length / 2)] ?? Number.NaN;
  }

  /** Microseconds of the server's process per answer; other processes that work for it are not included. */
  get processorMicros(): number {
    return (this.#processorMs * 1000) / this.latenciesMs.length;
  }

  async #ask(connections = CONNECTIONS): Promise<Answered> {
    const answered = await askFor(this.#question, { connections, forMs: TURN_MS });
    if (answered.failed > 0) throw new Error(`${answered.failed} calls were refused under load`);
    return answered;
  }
}

/**
 * What one server process serves: execs of machines without a VM (the fake driver) and reads of a machine, each against the
 * same HTTP framework with a handler that does nothing.
 *
 * Ours and the empty one are asked in turns of a few seconds in the same run; figures are the median of the turns. The
 * one who asks takes processor time too, the same in both.
 */
import { BenchFlotilla } from "./support/flotilla.ts";
import { startEmptyFramework } from "./support/empty-framework.ts";
import { askFor, type Answered, type Question } from "./support/load.ts";
import type { Finding } from "./support/report.ts";
import { atLeast, type Reach, summarize } from "./support/statistics.ts";

const CONNECTIONS = 32;
const TURN_MS = 2_000;

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
  reach: (ours) => atLeast("execs a second", ours, 3_000),
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
  await using empty = await startEmptyFramework();
  await flotilla.liftRateLimit();
  const { machine } = await flotilla.make();
  const { url, headers } = flotilla.access;
  const asked = question(machine.id);
  const [oursTurns, emptyTurns]: [Answered[], Answered[]] = [[], []];
  // The first turn of each is for the compiler.
  for (let turn = -1; turn < turns; turn++) {
    const ours = await askFor({ url, headers, ...asked }, { connections: CONNECTIONS, forMs: TURN_MS });
    const other = await askFor({ url: empty.url, headers, ...asked }, { connections: CONNECTIONS, forMs: TURN_MS });
    for (const { failed } of [ours, other]) if (failed > 0) throw new Error(`${failed} calls were refused under load`);
    if (turn < 0) continue;
    oursTurns.push(ours);
    emptyTurns.push(other);
  }
  const [oursRate, emptyRate] = [medianRate(oursTurns), medianRate(emptyTurns)];
  return {
    name,
    series: [
      { what, summary: summarize(oursTurns.flatMap(({ latenciesMs }) => latenciesMs)) },
      {
        what: "empty handler",
        summary: summarize(emptyTurns.flatMap(({ latenciesMs }) => latenciesMs)),
        isBaseline: true,
      },
    ],
    reaches: [reach(oursRate, emptyRate)],
    setting: { connections: CONNECTIONS, turns, "seconds a turn": TURN_MS / 1000 },
    notes: [
      `ours ${Math.round(oursRate)} a second, empty handler ${Math.round(emptyRate)} a second, ratio ${(oursRate / emptyRate).toFixed(3)}`,
    ],
  };
}

function medianRate(turns: readonly Answered[]): number {
  const rates = turns.map(({ perSecond }) => perSecond).toSorted((one, other) => one - other);
  return rates[Math.floor(rates.length / 2)] ?? Number.NaN;
}

/**
 * A process that plays seeds, one after the other, and prints a line of JSON for each. Started by play.ts
 * with a Job as its argument.
 */
import "./host.ts";
import type { ConnectionOptions } from "../../server/src/db/hosts.ts";
import { plant } from "./planted.ts";
import type { Outcome } from "./simulate.ts";

export interface Job {
  readonly connection: ConnectionOptions;
  readonly seeds: readonly number[];
  /** The name of a planted bug; null: none. */
  readonly bug: string | null;
  /** Whether each outcome has its whole history. */
  readonly isVerbose: boolean;
  /** No seed begins later, in milliseconds since this process started; null: all are played. */
  readonly beginMsMax: number | null;
}

/** What is printed for a seed. */
export type Line = Omit<Outcome, "met" | "calls" | "lines"> & {
  readonly met: readonly (readonly [string, number])[];
  readonly calls: readonly (readonly [string, number])[];
  /** The end of the history, after a violation. */
  readonly lines: readonly string[];
};

const LINES_OF_VIOLATION = 400;

const { connection, seeds, bug, isVerbose, beginMsMax } = JSON.parse(process.argv[2] ?? "") as Job;
if (bug !== null) plant(bug);
// Imported after the bug was planted.
const { RealDatabase } = await import("./database.ts");
const { simulate } = await import("./simulate.ts");
const database = await RealDatabase.open(connection);
await database.findBeginning();
for (const seed of seeds) {
  if (beginMsMax !== null && performance.now() > beginMsMax) break;
  const { met, calls, lines, ...rest } = await simulate(database, seed);
  const shown = isVerbose ? lines : rest.violation === null ? [] : lines.slice(-LINES_OF_VIOLATION);
  const line: Line = { ...rest, met: [...met], calls: [...calls], lines: shown };
  process.stdout.write(`${JSON.stringify(line)}\n`);
  if (bug !== null && rest.violation !== null) break;
}
await database.close();
// Timers of connections of earlier seeds may be left.
process.exit(0);

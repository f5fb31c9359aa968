/**
 * Uses a share of one processor, in short stretches.
 *
 * Its only argument is the share. Ends with its input, or after DEADLINE_MS.
 */
import { monotonic, sleep } from "./clock.ts";

const PERIOD_MS = 5;
const DEADLINE_MS = 30_000;

const share = Math.min(1, Number(process.argv[2] ?? 0));
const beganAt = monotonic();
process.stdin.on("end", () => process.exit(0)).resume();
while (monotonic() - beganAt < DEADLINE_MS) {
  const from = monotonic();
  while (monotonic() - from < PERIOD_MS * share);
  await sleep(Math.max(0, from + PERIOD_MS - monotonic()));
}
process.exit(0);

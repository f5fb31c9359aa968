/**
 * One flood, as a separate program, so that its processor time is measured separately.
 *
 * Its only argument is a FloodOrder as JSON. Prints a line when it is ready, floods from the first byte of
 * its input to the end of it, then prints a FloodCount and ends. Always: it floods for DEADLINE_MS at most,
 * makes a bounded number of calls, and ends with its parent.
 */
import { once } from "node:events";
import { Calls, type FloodOrder } from "./flood-calls.ts";
import { FLOODS } from "./flood-kinds.ts";

const DEADLINE_MS = 30_000;

const order = JSON.parse(process.argv[2] ?? "") as FloodOrder;
const calls = new Calls(order);
const floods = order.floods.map((name) => FLOODS[name](calls));
const ended = once(process.stdin, "end");
process.stdout.write("ready\n");
await once(process.stdin, "data");
const deadline = AbortSignal.timeout(DEADLINE_MS);
for (const begin of floods) begin();
deadline.addEventListener("abort", () => calls.stop());
await ended;
calls.stop();
process.stdout.write(`${JSON.stringify(calls.counts)}\n`, () => process.exit(0));

/**
 * When a program collects garbage.
 *
 * Streams pass through buffers that lie outside V8's heap. By default V8 begins a full collection after some
 * megabytes of them, however small the heap is: several for each stream of 64 MiB, each of which stops
 * everybody's calls for milliseconds. Counted with the heap instead, and when both may grow by more than V8
 * allows a small heap, buffers are mostly collected together with other young objects (docs/benchmarks.md has
 * figures). While V8 marks for a full collection, its helper threads also compete with the event loop for the
 * processors.
 */
import { setFlagsFromString } from "node:v8";

/**
 * How large heap and buffers may become before a full collection, relative to what the last one left. 4 is
 * the most that V8 chooses.
 */
const GROWTH = 4;

/**
 * Counts buffers with the heap, and lets both together grow by GROWTH. V8 chooses between 1.1 and 4 by
 * itself, and for a heap of some megabytes the least. Called once, when the program begins. The heap's own
 * limit still holds.
 */
export function countBuffersWithHeap(): void {
  setFlagsFromString("--external-memory-accounted-in-global-limit");
  setFlagsFromString(`--heap-growing-percent=${(GROWTH - 1) * 100}`);
}

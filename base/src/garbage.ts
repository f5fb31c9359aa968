/**
 * When a program collects garbage.
 *
 * Streams pass through buffers that lie outside V8's heap. By default V8 begins a full collection after some megabytes of them,
 * however small the heap is: several for each stream of 64 MiB, each of which stops everybody's calls for milliseconds. Counted
 * with the heap instead, buffers are mostly collected together with other young objects (docs/benchmarks.md has figures).
 */
import { setFlagsFromString } from "node:v8";

/** Counts buffers with the heap. Called once, when the program begins. The heap's own limit still holds. */
export function countBuffersWithHeap(): void {
  setFlagsFromString("--external-memory-accounted-in-global-limit");
}

/**
 * Everything that is done only for VMMs that QEMU emulates (TCG), and why. A KVM host runs none of this folder.
 *
 * What makes emulation slow is translating the guest's code, once in each VMM, and processors of guests that are threads of
 * the host. So a guest's settings keep its code short, a prepared VM runs a machine's way before there is a machine
 * (warm-up.ts) and on for SETTLE_MS, and background work gets idle processor time (background.ts).
 */
import { availableParallelism } from "node:os";
import type { Clock } from "@flotilla/base/clock";
import type { Tuning } from "../tuning.ts";
import { inBackground } from "./background.ts";
import { warmUp } from "./warm-up.ts";

export interface EmulationFacts {
  /** Of the host's time stamp counter, which emulated processors pass on; null when unknown. */
  readonly tscKhz: number | null;
  readonly clock: Clock;
}

/** Translated code kept in each VMM. QEMU's own default is 1 GiB, which is not counted anywhere. */
const TRANSLATION_BUFFER_MB = 256;
/** What finds translated code. */
const TRANSLATION_TABLES_MB = 128;
/**
 * What a guest does by itself in the first seconds after a mount (commits of the journal, the kernel's housekeeping) has its
 * code translated then; otherwise it costs every machine 0.1 s of processor just after its start, when in a burst there is
 * none to spare.
 */
const SETTLE_MS = 6_000;

/**
 * Five-level page tables only make every page walk longer. A processor that says its byte-wise string instructions are fast
 * is believed by its kernel, which then copies byte by byte; emulated, eight bytes at a time take as long as one. Without
 * that word, in the same guest: zeroing memory for a program 350 → 4500 MB/s, writing a file in memory 72 → 260 MB/s,
 * reading it 160 → 670 MB/s.
 */
const PROCESSOR = ["-accel", `tcg,thread=multi,tb-size=${TRANSLATION_BUFFER_MB}`, "-cpu", "max,la57=off,erms=off"];

/**
 * To the host's scheduler a VMM is a batch task: when its threads wake they do not interrupt running tasks. A guest's
 * processors wake each other all the time, and each used to interrupt the one that the command ran on, and the control plane;
 * batch tasks get as much of the host's processors and take it in longer turns. On two processors an exec of `true` on a
 * guest's channel took 5.3 ms instead of 6.0 (p95 7.4 instead of 10.5) and a sixth less processor time. A nice value would
 * take processor time from guests, and counts within a session only where the kernel groups tasks so.
 */
const BATCH = ["batch"];

/**
 * QEMU gives every thread a place of its own for translated code and asks for huge pages there, of which most of the last one
 * would never be used. A guest that boots has them: its memory is touched faster with them.
 */
const SMALL_PAGES = ["small-pages"];

export function emulationTuning({ tscKhz, clock }: EmulationFacts): Tuning {
  return {
    processor: PROCESSOR,
    kernelWords: kernelWords(tscKhz),
    hasKvm: false,
    memoryMb: TRANSLATION_BUFFER_MB + TRANSLATION_TABLES_MB,
    jailSteps: ({ isRestored }) => (isRestored ? [BATCH, SMALL_PAGES] : [BATCH]),
    startsAtOnceMax: {
      // A boot keeps a processor busy for seconds; with one more than processors none is idle between two boots.
      boots: availableParallelism() + 1,
      // One that wakes uses all of its virtual processors; a few at a time are all ready sooner than many at once.
      wakes: availableParallelism(),
    },
    inBackground: (vmm, work) => inBackground(vmm, clock, work),
    warmUp: (restored) => warmUp(restored, clock),
    settleMs: SETTLE_MS,
  };
}

function kernelWords(tscKhz: number | null): readonly string[] {
  // Emulated processors do not speculate, so there is nothing to mitigate; pages that are zeroed twice cost twice.
  const words = ["mitigations=off", "init_on_alloc=0"];
  // A guest that shares its host's processors may calibrate its clock for ever.
  return tscKhz === null ? words : [...words, `tsc_early_khz=${tscKhz}`];
}

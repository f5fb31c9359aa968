/**
 * Everything that is done only for emulated VMMs (TCG), with the reasons. A KVM host runs nothing of this
 * folder.
 *
 * Emulation is slow because each VMM translates the guest's code itself, and because the guest's processors
 * are threads of the host. So the settings keep the guest's code short, a prepared VM runs what a machine's
 * start runs before there is a machine (warm-up.ts) and keeps running for SETTLE_MS, and background work gets
 * idle processor time (background.ts).
 */
import { availableParallelism } from "node:os";
import type { Clock } from "@flotilla/base/clock";
import type { Tuning } from "../tuning.ts";
import { inBackground } from "./background.ts";
import { warmUp } from "./warm-up.ts";

export interface EmulationFacts {
  /** Rate of the host's time stamp counter, which emulated processors pass on; null if unknown. */
  readonly tscKhz: number | null;
  readonly clock: Clock;
}

/** Translated code cached in each VMM. QEMU's default is 1 GiB, which no limit accounts for. */
const TRANSLATION_BUFFER_MB = 256;
/** The index of the translated code. */
const TRANSLATION_TABLES_MB = 128;
/**
 * What a guest does by itself in the first seconds after a mount (journal commits, kernel housekeeping) is
 * translated in this time. Otherwise it costs every machine 0.1 s of processor time just after its start,
 * when a burst of starts has none to spare.
 */
const SETTLE_MS = 6_000;

/**
 * Five-level page tables only lengthen every page walk. With `erms` the kernel believes that byte-wise string
 * instructions are fast and copies byte by byte; emulated, copying eight bytes takes as long as one. Without
 * `erms`, in the same guest: zeroing memory for a program 350 → 4500 MB/s, writing a file in memory 72 → 260
 * MB/s, reading it 160 → 670 MB/s.
 */
const PROCESSOR = ["-accel", `tcg,thread=multi,tb-size=${TRANSLATION_BUFFER_MB}`, "-cpu", "max,la57=off,erms=off"];

/**
 * The scheduler's batch class: threads that wake up do not interrupt running tasks. A guest's processors wake
 * each other all the time, and each wake-up used to interrupt the one that ran the command, and the control
 * plane. Batch tasks get the same processor time in longer slices. On two processors an exec of `true` on a
 * guest's channel took 5.3 ms instead of 6.0 (p95 7.4 instead of 10.5) and a sixth less processor time. A
 * nice value would take processor time from guests, and applies only within a session where the kernel has
 * autogroups.
 */
const BATCH = ["batch"];

/**
 * QEMU gives every thread its own buffer of translated code and requests huge pages for it, most of which
 * would never be used. A guest that boots keeps huge pages, because its memory is touched faster with them.
 */
const SMALL_PAGES = ["small-pages"];

/** QEMU's local APIC counts nanoseconds, and Linux has it count every sixteenth. */
const TIMER_KHZ = 62_500;

export function emulationTuning({ tscKhz, clock }: EmulationFacts): Tuning {
  return {
    processor: PROCESSOR,
    kernelParameters: kernelParameters(tscKhz),
    timerKhz: TIMER_KHZ,
    hasKvm: false,
    memoryMb: TRANSLATION_BUFFER_MB + TRANSLATION_TABLES_MB,
    jailSteps: ({ isRestored }) => (isRestored ? [BATCH, SMALL_PAGES] : [BATCH]),
    concurrentStartsMax: {
      // A boot keeps a processor busy for seconds; with one boot more than processors none is idle between
      // two boots.
      boots: availableParallelism() + 1,
      // A resumed VM uses all its virtual processors; a few at a time are ready sooner than many at once.
      wakes: availableParallelism(),
    },
    inBackground: (vmm, work) => inBackground(vmm, clock, work),
    warmUp: (restored) => warmUp(restored, clock),
    // A mount is two thirds of the code that a restored guest has to translate until its first command has
    // ended.
    savesMountedGuests: true,
    settleMs: SETTLE_MS,
  };
}

function kernelParameters(tscKhz: number | null): readonly string[] {
  // Emulated processors do not speculate, so there is nothing to mitigate. Zeroing pages on allocation would
  // double its cost.
  const parameters = ["mitigations=off", "init_on_alloc=0"];
  // Without this parameter a guest on a busy host may calibrate its clock without end.
  return tscKhz === null ? parameters : [...parameters, `tsc_early_khz=${tscKhz}`];
}

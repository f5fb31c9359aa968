/**
 * The differences between accelerators, as one object. Under KVM only the choice of the processor differs
 * (KVM_TUNING); everything that only emulated VMMs need is in tcg/.
 */
import { availableParallelism } from "node:os";
import type { PreparedDisk, ConcurrentStartsMax } from "../driver.ts";
import type { Guest } from "../../guest/guest.ts";
import type { PlaceholderFacts } from "./placeholder-machine.ts";
import type { Vmm } from "./vmm.ts";

export interface Tuning {
  /** QEMU's arguments for accelerator and processor. */
  readonly processor: readonly string[];
  /** Parameters of the guest kernel's command line, besides the common ones. */
  readonly kernelParameters: readonly string[];
  /** How fast the timer of a guest's processor counts, in kHz; null: its kernel does not measure it. */
  readonly timerKhz: number | null;
  /** Whether the VMM opens /dev/kvm. */
  readonly hasKvm: boolean;
  /** Upper limit of the memory that the accelerator uses in a VMM. */
  readonly memoryMb: number;
  /** Additional steps of node/native/jail.c. */
  jailSteps(vmm: { readonly isRestored: boolean }): readonly (readonly string[])[];
  readonly concurrentStartsMax: ConcurrentStartsMax;
  /**
   * Runs `work`, which prepares a VM in the background. Rejects as `work` does, or when the VMM has ended.
   */
  inBackground<T>(vmm: Vmm, work: () => Promise<T>): Promise<T>;
  /**
   * Runs in a restored guest what a machine's start and first command will run. Rejects when the guest has
   * ended.
   */
  warmUp(restored: RestoredGuest): Promise<void>;
  /** Whether images that are used often get templates whose guests have mounted a disk (template.ts). */
  readonly savesMountedGuests: boolean;
  /** How long a prepared VM runs before it is paused. */
  readonly settleMs: number;
}

/** A restored guest that does not belong to a machine yet. */
export interface RestoredGuest {
  readonly guest: Guest;
  /** Its configuration with the disk of a future machine; null if it has no disk. */
  readonly mounted: PlaceholderFacts | null;
  /** As in PrepareRequest. */
  readonly makeScratchDisk: (() => Promise<PreparedDisk>) | null;
  /** Attaches a disk to its disk device. Resolves with the configuration for it. */
  attach(disk: PreparedDisk): Promise<PlaceholderFacts>;
  /** Detaches that disk. */
  detach(): Promise<void>;
}

/**
 * The host's processor without nested virtualization, which would expose the host kernel's nested paths to
 * every tenant, and without performance counters, whose registers a restored guest might lack.
 */
export const KVM_TUNING: Tuning = {
  processor: ["-accel", "kvm", "-cpu", "host,svm=off,vmx=off,pmu=off"],
  kernelParameters: [],
  // It has a TSC deadline timer.
  timerKhz: null,
  hasKvm: true,
  memoryMb: 0,
  jailSteps: () => [],
  concurrentStartsMax: { boots: availableParallelism() + 1, wakes: availableParallelism() + 1 },
  inBackground: (_vmm, work) => work(),
  warmUp: () => Promise.resolve(),
  savesMountedGuests: false,
  settleMs: 0,
};

/**
 * What the driver does differently by accelerator, as one object. Under KVM that is nothing but the choice of the processor
 * (KVM_TUNING); everything that only emulated VMMs need is in tcg/.
 */
import { availableParallelism } from "node:os";
import type { PreparedDisk, StartsAtOnceMax } from "../driver.ts";
import type { Guest } from "../../guest/guest.ts";
import type { UnnamedFacts } from "./unnamed.ts";
import type { Vmm } from "./vmm.ts";

export interface Tuning {
  /** QEMU's arguments for accelerator and processor. */
  readonly processor: readonly string[];
  /** Words of the guest kernel's command line, besides those that every guest has. */
  readonly kernelWords: readonly string[];
  /** The VMM opens /dev/kvm. */
  readonly hasKvm: boolean;
  /** Memory that a VMM takes for its accelerator, at most. */
  readonly memoryMb: number;
  /** Steps of node/native/jail.c, besides those of every VMM. */
  jailSteps(vmm: { readonly isRestored: boolean }): readonly (readonly string[])[];
  readonly startsAtOnceMax: StartsAtOnceMax;
  /** Does `work`, which prepares a VM in the background. Rejects as `work` does, or when the VMM has ended. */
  inBackground<T>(vmm: Vmm, work: () => Promise<T>): Promise<T>;
  /** Runs in a restored guest what a machine's start and first command will run. Rejects when the guest has ended. */
  warmUp(restored: RestoredGuest): Promise<void>;
  /** How long a prepared VM runs before it is paused. */
  readonly settleMs: number;
}

/** A guest that is no machine's yet. */
export interface RestoredGuest {
  readonly guest: Guest;
  /** What it was told when it mounted the disk of a machine to be; null: it has no disk. */
  readonly mounted: UnnamedFacts | null;
  /** As of PrepareRequest. */
  readonly makeScratchDisk: (() => Promise<PreparedDisk>) | null;
  /** Puts a disk under its disk device. Resolves with what its configuration says of the disk. */
  attach(disk: PreparedDisk): Promise<UnnamedFacts>;
  /** Takes that disk away again. */
  detach(): Promise<void>;
}

/**
 * The host's processor without its virtualization, which would put the host kernel's nested paths before every tenant, and
 * without performance counters, whose registers a restored guest need not have.
 */
export const KVM_TUNING: Tuning = {
  processor: ["-accel", "kvm", "-cpu", "host,svm=off,vmx=off,pmu=off"],
  kernelWords: [],
  hasKvm: true,
  memoryMb: 0,
  jailSteps: () => [],
  startsAtOnceMax: { boots: availableParallelism() + 1, wakes: availableParallelism() + 1 },
  inBackground: (_vmm, work) => work(),
  warmUp: () => Promise.resolve(),
  settleMs: 0,
};

/**
 * The kinds of prepared VMs: which exist, the demand for each, the VMs of each, and what to prepare or
 * discard next. Has no effects; times are passed in.
 *
 * A kind is a size, and an image whose disk is mounted already, or no image for machines that have a disk.
 *
 * Always:
 * - A few kinds are permanent, and come first. Others are added with demand, at most KINDS_BY_DEMAND_MAX; the
 *   oldest of them is displaced.
 * - The next VM is of the kind with the fewest waiting, of those that need more, so no kind waits for all of
 *   another.
 * - A kind that failed is skipped for a time that doubles with each failure; other kinds are prepared in the
 *   meantime.
 */
import type { MachineSpec } from "@flotilla/contract/link/link";
import type { PreparedVm } from "../../driver/driver.ts";
import type { UnpackedImage } from "../../images/images.ts";
import { DEMAND_MS, type Demand, type PreparedFacts, PREPARED_MAX, type Start, targetCounts } from "./plan.ts";

/** The parts of a machine that a VM for it depends on. */
export type Size = Pick<MachineSpec, "cpus" | "memoryMb" | "diskGb">;

/** A machine that is being started. */
export type Taker = Size & Pick<MachineSpec, "machineId">;

/** A prepared VM, and the disk that it has. */
export interface WaitingVm {
  readonly vm: PreparedVm;
  readonly diskPath: string | null;
}

/** The start of a machine. */
interface MachineStart extends Start {
  readonly machineId: string;
  endedAt: number | null;
}

/** A kind. Times are monotonic milliseconds. */
export interface Kind extends Demand, Size {
  /** null: without a disk; `diskGb` has no meaning then. */
  readonly image: UnpackedImage | null;
  readonly starts: MachineStart[];
  usedAt: number;
  readonly waiting: WaitingVm[];
  /** Consecutive failures. */
  failures: number;
  /** The kind is skipped before this time. */
  retryAt: number;
}

export type NextStep =
  | { readonly kind: "prepare"; readonly of: Kind }
  /** It is not in the pool any more. */
  | { readonly kind: "discard"; readonly vm: PreparedVm }
  | { readonly kind: "nothing" };

const KINDS_BY_DEMAND_MAX = 6;
/** The pause after the first failure of a kind; doubles with each further one. */
export const RETRY_MS_MIN = 10_000;
const RETRY_MS_MAX = 15 * 60_000;
/** The time of a preparation is the median of so many. */
const MEASURED_MAX = 5;
/** The assumed time before any preparation. */
const ASSUMED_MS = 2_000;

export class PreparedKinds {
  /** Permanent ones first, then in the order in which they were added. */
  readonly #kinds: Kind[] = [];
  /** How long the last preparations took, in milliseconds; the first of a kind also makes a template. */
  readonly #prepareMs: number[] = [];

  /** Adds a permanent kind, of which `minimum` are prepared also without demand. */
  keep(size: Size, image: UnpackedImage | null, minimum: number, now: number): void {
    this.#add(makeKind(size, { image, minimum, now }));
  }

  find(size: Size, image: UnpackedImage | null): Kind | undefined {
    return this.#kinds.find(
      (kind) =>
        kind.image?.digest === image?.digest &&
        kind.cpus === size.cpus &&
        kind.memoryMb === size.memoryMb &&
        (image === null || kind.diskGb === size.diskGb),
    );
  }

  has(kind: Kind): boolean {
    return this.#kinds.includes(kind);
  }

  /** Digests of the images that the disks of prepared VMs depend on. */
  get imageDigests(): readonly string[] {
    return this.#kinds.flatMap(({ image, waiting }) => (image !== null && waiting.length > 0 ? [image.digest] : []));
  }

  /**
   * Counts the demand, until the machine's start has ended. Returns a VM, if one is prepared, and the VMs of
   * a kind that this one displaces.
   */
  take(
    { machineId, ...size }: Taker,
    image: UnpackedImage | null,
    now: number,
  ): { readonly taken: WaitingVm | undefined; readonly displaced: readonly WaitingVm[] } {
    const { kind, displaced } = this.#findOrMake(size, image, now);
    kind.usedAt = now;
    kind.starts.push({ machineId, at: now, endedAt: null });
    if (kind.starts.length > PREPARED_MAX) kind.starts.shift();
    return { taken: kind.waiting.shift(), displaced };
  }

  /** The start of a machine has ended, whatever it took. */
  started(machineId: string, now: number): void {
    for (const { starts } of this.#kinds)
      for (const start of starts) if (start.machineId === machineId) start.endedAt ??= now;
  }

  /** Removes all VMs from the pool and returns them. */
  takeAll(): readonly WaitingVm[] {
    return this.#kinds.flatMap(({ waiting }) => waiting.splice(0));
  }

  /** The next step towards the target counts. Surplus VMs are discarded first, because they hold memory. */
  next({ totalMemoryMb, availableMemoryMb, processorPressure }: HostFacts, now: number): NextStep {
    for (const { starts } of this.#kinds) while (now - (starts[0]?.at ?? now) > DEMAND_MS) starts.shift();
    const demands = this.#kinds;
    const prepareMs = this.#prepareMs.toSorted((one, two) => one - two)[this.#prepareMs.length >> 1] ?? ASSUMED_MS;
    const targets = targetCounts({ now, demands, totalMemoryMb, availableMemoryMb, prepareMs, processorPressure });
    const missing = (kind: Kind, index: number): number => (targets[index] ?? 0) - kind.waiting.length;
    const tooMany = demands.find((kind, index) => missing(kind, index) < 0)?.waiting.pop();
    if (tooMany !== undefined) return { kind: "discard", vm: tooMany.vm };
    const tooFew = demands.filter((kind, index) => missing(kind, index) > 0 && now >= kind.retryAt);
    // After a burst of one kind the others do not wait for all of it.
    const [next] = tooFew.toSorted((one, two) => one.waiting.length - two.waiting.length);
    return next === undefined ? { kind: "nothing" } : { kind: "prepare", of: next };
  }

  /** `tookMs`: how long it took to prepare. */
  succeeded(kind: Kind, tookMs: number): void {
    kind.failures = 0;
    this.#prepareMs.push(tookMs);
    if (this.#prepareMs.length > MEASURED_MAX) this.#prepareMs.shift();
  }

  /** Returns the milliseconds until the kind is tried again. */
  failed(kind: Kind, now: number): number {
    const delayMs = Math.min(RETRY_MS_MIN * 2 ** kind.failures, RETRY_MS_MAX);
    kind.failures += 1;
    kind.retryAt = now + delayMs;
    return delayMs;
  }

  #findOrMake(size: Size, image: UnpackedImage | null, now: number) {
    const found = this.find(size, image);
    if (found !== undefined) return { kind: found, displaced: [] };
    const byDemand = this.#kinds.filter(({ minimum }) => minimum === 0);
    const [oldest] = byDemand.length >= KINDS_BY_DEMAND_MAX ? byDemand : [];
    const displaced = oldest === undefined ? [] : this.#kinds.splice(this.#kinds.indexOf(oldest), 1);
    const kind = this.#add(makeKind(size, { image, minimum: 0, now }));
    // Out of the pool: a VM that is still in it when it ends is discarded a second time.
    return { kind, displaced: displaced.flatMap(({ waiting }) => waiting.splice(0)) };
  }

  #add(kind: Kind): Kind {
    this.#kinds.push(kind);
    return kind;
  }
}

type HostFacts = Pick<PreparedFacts, "totalMemoryMb" | "availableMemoryMb" | "processorPressure">;

function makeKind(
  { cpus, memoryMb, diskGb }: Size,
  { image, minimum, now }: { readonly image: UnpackedImage | null; readonly minimum: number; readonly now: number },
): Kind {
  return {
    ...{ cpus, memoryMb, diskGb, image, minimum, usedAt: now, starts: [], waiting: [] },
    ...{ failures: 0, retryAt: 0 },
  };
}

/**
 * The kinds of VMs that wait prepared: which there are, what was asked of each, what waits, and what to do next. Does nothing
 * itself, and gets the time.
 *
 * A kind is what a machine to come may be given: a size, and an image whose disk is mounted already, or none for machines that
 * have a disk. Always: a few kinds are kept for ever; others come with demand, at most KINDS_MAX in all, and the one that came
 * first gives way. A kind that failed is left alone for a while, longer with each failure, and the others have their turn.
 */
import type { MachineSpec } from "@flotilla/contract/link";
import type { PreparedVm } from "../driver/driver.ts";
import type { UnpackedImage } from "../images/images.ts";
import { DEMAND_MS, type Demand, type PreparedFacts, PREPARED_MAX, targetCounts } from "./prepared-plan.ts";

/** The parts of a machine that a VM for it depends on. */
export type Size = Pick<MachineSpec, "cpus" | "memoryMb" | "diskGb">;

/** A VM that waits, and the disk it waits with. */
export interface WaitingVm {
  readonly vm: PreparedVm;
  readonly diskPath: string | null;
}

/** Times are monotonic milliseconds. */
export interface Kind extends Demand, Size {
  /** null: without a disk; `diskGb` says nothing then. */
  readonly image: UnpackedImage | null;
  readonly takenAt: number[];
  usedAt: number;
  readonly waiting: WaitingVm[];
  /** In a row. */
  failures: number;
  /** Before this it is not tried again. */
  retryAt: number;
}

export type NextStep =
  | { readonly kind: "prepare"; readonly of: Kind }
  /** It waits no more. */
  | { readonly kind: "discard"; readonly vm: PreparedVm }
  | { readonly kind: "nothing" };

const KINDS_MAX = 8;
/** From a failure until the same kind is tried again: doubled with each further failure. */
export const RETRY_MS_MIN = 10_000;
const RETRY_MS_MAX = 15 * 60_000;

export class PreparedKinds {
  /** In the order in which they are served. */
  readonly #kinds: Kind[] = [];

  /** A kind of which `least` wait also without demand. */
  keep(size: Size, image: UnpackedImage | null, minimum: number, now: number): void {
    this.#kinds.push(makeKind(size, { image, minimum, now }));
  }

  has(kind: Kind): boolean {
    return this.#kinds.includes(kind);
  }

  /** Digests of the images on which disks of waiting VMs stand. */
  get imageDigests(): readonly string[] {
    return this.#kinds.flatMap(({ image, waiting }) => (image !== null && waiting.length > 0 ? [image.digest] : []));
  }

  /** Notes that one was wanted. Returns it, if one waits, and those whose kind gives way to this one. */
  take(
    size: Size,
    image: UnpackedImage | null,
    now: number,
  ): { readonly taken: WaitingVm | undefined; readonly displaced: readonly WaitingVm[] } {
    const { kind, displaced } = this.#findOrMake(size, image, now);
    kind.usedAt = now;
    kind.takenAt.push(now);
    if (kind.takenAt.length > PREPARED_MAX) kind.takenAt.shift();
    return { taken: kind.waiting.shift(), displaced };
  }

  /** All that wait; they wait no more. */
  takeAll(): readonly WaitingVm[] {
    return this.#kinds.flatMap(({ waiting }) => waiting.splice(0));
  }

  /** What brings the number that waits nearer to what is wanted. What is too much goes first: it has the memory. */
  next({ totalMemoryMb, availableMemoryMb }: Memory, now: number): NextStep {
    for (const { takenAt } of this.#kinds) while (now - (takenAt[0] ?? now) > DEMAND_MS) takenAt.shift();
    const demands = this.#kinds;
    const waiting = demands.reduce((sum, kind) => sum + kind.waiting.length, 0);
    const targets = targetCounts({ now, demands, totalMemoryMb, availableMemoryMb, waiting });
    const missing = (kind: Kind, index: number): number => (targets[index] ?? 0) - kind.waiting.length;
    const tooMany = this.#kinds.find((kind, index) => missing(kind, index) < 0)?.waiting.pop();
    if (tooMany !== undefined) return { kind: "discard", vm: tooMany.vm };
    const tooFew = this.#kinds.find((kind, index) => missing(kind, index) > 0 && now >= kind.retryAt);
    return tooFew === undefined ? { kind: "nothing" } : { kind: "prepare", of: tooFew };
  }

  succeeded(kind: Kind): void {
    kind.failures = 0;
  }

  /** Returns after how many milliseconds the kind has its turn again. */
  failed(kind: Kind, now: number): number {
    const delayMs = Math.min(RETRY_MS_MIN * 2 ** kind.failures, RETRY_MS_MAX);
    kind.failures += 1;
    kind.retryAt = now + delayMs;
    return delayMs;
  }

  #findOrMake(size: Size, image: UnpackedImage | null, now: number) {
    const isSame = (kind: Kind): boolean =>
      kind.image?.digest === image?.digest &&
      kind.cpus === size.cpus &&
      kind.memoryMb === size.memoryMb &&
      (image === null || kind.diskGb === size.diskGb);
    const found = this.#kinds.find(isSame);
    if (found !== undefined) return { kind: found, displaced: [] };
    const oldest = this.#kinds.findIndex(({ minimum }) => minimum === 0);
    const displaced = this.#kinds.length >= KINDS_MAX && oldest >= 0 ? this.#kinds.splice(oldest, 1) : [];
    const kind = makeKind(size, { image, minimum: 0, now });
    this.#kinds.push(kind);
    return { kind, displaced: displaced.flatMap(({ waiting }) => waiting) };
  }
}

type Memory = Pick<PreparedFacts, "totalMemoryMb" | "availableMemoryMb">;

function makeKind(
  { cpus, memoryMb, diskGb }: Size,
  { image, minimum, now }: { readonly image: UnpackedImage | null; readonly minimum: number; readonly now: number },
): Kind {
  return { cpus, memoryMb, diskGb, image, minimum, usedAt: now, takenAt: [], waiting: [], failures: 0, retryAt: 0 };
}

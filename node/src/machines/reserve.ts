/**
 * The images of the VMs that this node keeps for shared pools: found, or fetched in the background.
 *
 * In memory only: the answer to the next heartbeat says again what is to be kept.
 *
 * Always:
 * - An image is fetched as the operator's, one at a time. After a failure the next attempt is later each time (RETRY_MS_MIN to
 *   RETRY_MS_MAX); other images come first.
 * - A share whose image is not on the node reserves nothing.
 */
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import type { ReserveShare } from "@flotilla/contract/link";
import type { Images, UnpackedImage } from "../images/images.ts";
import type { Reserved } from "./prepared-kinds.ts";

export interface ReserveOptions {
  readonly images: Images;
  readonly clock: Clock;
  readonly log: Log;
  /** Ends a fetch. */
  readonly signal: AbortSignal;
  /** Called when a fetch has ended. */
  readonly onFetched: () => void;
}

/** Of one image that could not be fetched. */
interface Failure {
  readonly count: number;
  /** Monotonic milliseconds. */
  readonly retryAt: number;
  readonly error: string;
}

const RETRY_MS_MIN = 10_000;
const RETRY_MS_MAX = 15 * 60_000;

/** A share, and its image if the node has it. */
export interface FoundShare {
  readonly share: ReserveShare;
  readonly image: UnpackedImage | undefined;
}

export class Reserve {
  readonly #options: ReserveOptions;
  #shares: readonly ReserveShare[] = [];
  #found: readonly FoundShare[] = [];
  readonly #failures = new Map<string, Failure>();
  #isFetching = false;

  constructor(options: ReserveOptions) {
    this.#options = options;
  }

  /** Whether something has changed. */
  set(shares: readonly ReserveShare[]): boolean {
    const isChanged = JSON.stringify(shares) !== JSON.stringify(this.#shares);
    this.#shares = shares;
    return isChanged;
  }

  /** The shares as of the last `find`. */
  get found(): readonly FoundShare[] {
    return this.#found;
  }

  /** Why an image could not be fetched; null: it was not tried, or it is there. */
  errorOf(reference: string): string | null {
    return this.#failures.get(reference)?.error ?? null;
  }

  /** What is to be kept of images that the node has. Begins to fetch one that it has not. */
  async find(): Promise<readonly Reserved[]> {
    const shares = this.#shares;
    const found: FoundShare[] = [];
    // A reference that cannot be parsed is refused by the fetch, which keeps the reason.
    const find = (reference: string) => this.#options.images.find(reference, null).catch(() => undefined);
    for (const share of shares) found.push({ share, image: await find(share.reference) });
    this.#found = found;
    const references = new Set(shares.map(({ reference }) => reference));
    for (const reference of this.#failures.keys()) if (!references.has(reference)) this.#failures.delete(reference);
    for (const { share, image } of found) if (image !== undefined) this.#failures.delete(share.reference);
    const missing = found.find(({ share, image }) => image === undefined && share.count > 0 && this.#isDue(share));
    if (missing !== undefined && !this.#isFetching) void this.#fetch(missing.share.reference);
    return found.flatMap(({ share: { cpus, memoryMb, diskGb, count }, image }) =>
      image === undefined ? [] : [{ size: { cpus, memoryMb, diskGb }, image, count }],
    );
  }

  #isDue({ reference }: ReserveShare): boolean {
    return this.#options.clock.monotonic() >= (this.#failures.get(reference)?.retryAt ?? 0);
  }

  /** Never rejects. */
  async #fetch(reference: string): Promise<void> {
    const { images, clock, log, signal, onFetched } = this.#options;
    this.#isFetching = true;
    try {
      await images.ensure(reference, { arch: null, tenantId: null, signal });
    } catch (error) {
      if (signal.aborted) return;
      const { count = 0 } = this.#failures.get(reference) ?? {};
      const delayMs = Math.min(RETRY_MS_MIN * 2 ** count, RETRY_MS_MAX);
      const reason = messageOf(error);
      this.#failures.set(reference, { count: count + 1, retryAt: clock.monotonic() + delayMs, error: reason });
      log[count === 0 ? "warn" : "debug"]({ image: reference, reason, delayMs }, "no VM waits for a shared pool");
    } finally {
      this.#isFetching = false;
      onFetched();
    }
  }
}

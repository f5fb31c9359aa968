/**
 * Limits how many machines start at the same time, with a queue that is fair between tenants.
 *
 * More concurrent starts than processors make all of them slower; the driver sets the number. Boots and wakes
 * of prepared VMs have separate limits, so that no wake waits for a boot. Waiters are served round-robin by
 * tenant, FIFO within a tenant, so that a tenant who starts a hundred machines does not delay another's
 * single one.
 *
 * Always: `taken` is at most `limit`. A released slot goes to exactly one waiter.
 */
import { reasonOf } from "@flotilla/base/abort";

interface Waiter {
  readonly admit: () => void;
}

export class BootSlots {
  readonly #limit: number;
  #taken = 0;
  /** Waiters by tenant, in round-robin order. A tenant that was served moves to the end. */
  readonly #waiting = new Map<string, Waiter[]>();

  constructor(limit: number) {
    this.#limit = limit;
  }

  get taken(): number {
    return this.#taken;
  }

  get waiting(): number {
    return [...this.#waiting.values()].reduce((sum, waiters) => sum + waiters.length, 0);
  }

  /** A slot, if one is free. The function returned releases it; further calls of it do nothing. */
  tryTake(): (() => void) | undefined {
    if (this.#taken >= this.#limit) return undefined;
    this.#taken += 1;
    return this.#releaseOnce();
  }

  /** Waits for a slot. Rejects with the signal's reason when it is aborted first. */
  take(tenantId: string, signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted();
    const free = this.tryTake();
    if (free !== undefined) return Promise.resolve(free);
    return new Promise((resolve, reject) => {
      const waiter: Waiter = {
        admit: () => {
          signal.removeEventListener("abort", abort);
          resolve(this.#releaseOnce());
        },
      };
      const abort = (): void => {
        this.#remove(tenantId, waiter);
        reject(reasonOf(signal));
      };
      signal.addEventListener("abort", abort, { once: true });
      const waiters = this.#waiting.get(tenantId);
      if (waiters === undefined) this.#waiting.set(tenantId, [waiter]);
      else waiters.push(waiter);
    });
  }

  #releaseOnce(): () => void {
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      this.#passSlot();
    };
  }

  /** Passes the slot to the next waiter, else frees it. */
  #passSlot(): void {
    const [turn] = this.#waiting;
    if (turn === undefined) {
      this.#taken -= 1;
      return;
    }
    const [tenantId, waiters] = turn;
    const waiter = waiters.shift();
    this.#waiting.delete(tenantId);
    if (waiters.length > 0) this.#waiting.set(tenantId, waiters);
    waiter?.admit();
  }

  #remove(tenantId: string, waiter: Waiter): void {
    const waiters = this.#waiting.get(tenantId);
    const index = waiters?.indexOf(waiter) ?? -1;
    if (waiters === undefined || index < 0) return;
    waiters.splice(index, 1);
    if (waiters.length === 0) this.#waiting.delete(tenantId);
  }
}

/**
 * The fence of one VMM: a timer of the kernel that kills it at the end of the node's lease
 * (node/native/fence.c). This renews it.
 *
 * Always:
 * - What is sent is the lease's end itself, so a renewal that arrives late makes the timer no later.
 * - `isArmed` only when the VMM has confirmed its timer, or was started with it.
 *
 * Nothing here ends the VMM. If this process hangs or dies, the kernel does.
 */
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import type { FenceLease } from "../../host/fence-lease.ts";
import type { Qmp } from "./qmp.ts";

/** A variable of the environment of a VMM that is fenced from its start. */
export const FENCE_VARIABLE = "FLOTILLA_FENCE_AT";
/** As in node/native/fence.c. */
const PATH_PREFIX = "/proc/self/flotilla-fence-";
/** What QEMU says when the library has taken the path: the text of ECANCELED. */
const TAKEN = "Operation canceled";
/** Disarms the timer. */
const NEVER = 0;

export interface VmmFenceOptions {
  readonly lease: FenceLease;
  /** null: not connected. */
  readonly qmp: () => Qmp | null;
  readonly clock: Clock;
  readonly log: Log;
}

/** The end of the lease for the environment of a VMM. One that has ended kills it at once. */
export const firstFence = ({ until }: FenceLease): number => Math.max(1, Math.floor(until));

export class VmmFence {
  readonly #options: VmmFenceOptions;
  #endWatch: (() => void) | null = null;
  /** The instant that the VMM has confirmed; null: none. */
  #confirmed: number | null = null;
  /** The latest instant that was sent. */
  #sent = 0;

  constructor(options: VmmFenceOptions) {
    this.#options = options;
  }

  get isArmed(): boolean {
    return this.#confirmed !== null;
  }

  /**
   * The VMM was started with it. It is renewed from now on. `until`: as firstFence; 0: by an earlier agent,
   * so it is unknown.
   */
  inherit(until: number): void {
    this.#confirmed = until;
    this.#sent = until;
    this.#begin();
  }

  /** Rejects when the VMM has no library that does it, or its control channel has ended. */
  async arm(): Promise<void> {
    this.#begin();
    await this.#renew();
  }

  /** The same. */
  async lift(): Promise<void> {
    this.close();
    await this.#set(NEVER);
    this.#confirmed = null;
    this.#sent = 0;
  }

  /** The VMM can be reached from now on. */
  connected(): void {
    if (this.#endWatch !== null) this.#renewLater();
  }

  /** Renews it no more. */
  close(): void {
    this.#endWatch?.();
    this.#endWatch = null;
  }

  /** When it ended the VMM, which has just been seen to be gone, in epoch milliseconds; null: it has not. */
  endedAt(): number | null {
    const { clock } = this.#options;
    const lateMs = this.#confirmed === null ? -1 : clock.boottime() - this.#confirmed;
    if (lateMs < 0) return null;
    return this.#sent === 0 ? clock.now() : clock.now() - Math.max(0, clock.boottime() - this.#sent);
  }

  #begin(): void {
    this.#endWatch ??= this.#options.lease.watch(() => this.#renewLater());
  }

  #renewLater(): void {
    if (this.#options.qmp() === null) return;
    this.#renew().catch((error: unknown) =>
      this.#options.log.warn(
        { reason: messageOf(error) },
        "the fence of a VM could not be renewed; it ends unless that is possible soon",
      ),
    );
  }

  async #renew(): Promise<void> {
    const at = Math.floor(this.#options.lease.until);
    if (at <= this.#sent) return;
    const before = this.#sent;
    this.#sent = at;
    try {
      await this.#set(at);
    } catch (error) {
      if (this.#sent === at) this.#sent = before;
      throw error;
    }
    this.#confirmed = Math.max(at, this.#confirmed ?? 0);
  }

  async #set(at: number): Promise<void> {
    const qmp = this.#options.qmp();
    if (qmp === null) throw new Error("the VMM's control channel is closed");
    const node = { driver: "file", "node-name": "fence", filename: `${PATH_PREFIX}${at}`, "read-only": true };
    const answer = await qmp.execute("blockdev-add", node).then(() => "it opened a file", messageOf);
    if (!answer.includes(TAKEN)) throw new Error(`the VMM cannot be fenced: ${answer}`);
  }
}

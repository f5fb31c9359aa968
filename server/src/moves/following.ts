/**
 * Sends the disk of a machine that runs on its new node already: first what its VM waits for, and everything else in order.
 *
 * Always:
 * - Only the target knows what it has, and says what is to be sent next. Each part is compared by its hash there. So any server
 *   continues, and two that send the same part do no harm.
 * - The source keeps its copy until the target has said that all of the disk is there, durably.
 * - A node that does not answer is asked again for as long as it takes: reads of what is missing wait meanwhile, and the machine's
 *   timeline says so.
 *
 * Ends when all has arrived, when the machine is deleted, and when the server stops or loses its lease.
 */
import { messageOf } from "@flotilla/base/errors";
import { type MoveCall, relayFile, type WantedKind, wantedBlocks } from "../link/moves.ts";
import { nodeOf } from "../machines/record.ts";
import type { MachineServices } from "../machines/services.ts";
import { nodeAddress } from "./copy.ts";
import { removeCopies } from "./copies.ts";
import { endFollowing, type FollowingDisk, keepFollowing, releaseFollowing } from "./following-store.ts";

/** How long the disk of a server that died is not sent. */
export const FOLLOWING_LEASE_MS = 10_000;
const KEEP_PERIOD_MS = 2_000;
/** Two reads of a VM are sent at a time, beside the rest. */
const LANES: readonly WantedKind[] = ["read", "read", "rest"];
const WAIT_MS = 10_000;
const RETRY_MS = 500;
/** Less is not worth a line in the timeline. */
const TROUBLE_MS = 5_000;

/** `onTrouble`: called with whether nothing of it arrives, when that has changed. */
export async function sendFollowing(
  services: MachineServices,
  disk: FollowingDisk,
  { stopping, onTrouble }: { readonly stopping: AbortSignal; readonly onTrouble: (isStuck: boolean) => void },
): Promise<void> {
  const { context } = services;
  if (disk.isDeleted) return await finish(services, disk);
  const sending = new Sending(services, disk, { stopping, onTrouble });
  const isComplete = await sending.run();
  if (isComplete) {
    await finish(services, disk);
    services.activity.note(disk.machineId, "info", `all of its disk has arrived from node ${disk.nodeId}`);
  } else await releaseFollowing(context.db, disk);
}

async function finish(services: MachineServices, disk: FollowingDisk): Promise<void> {
  await endFollowing(services.context.db, disk);
  await removeCopies(services, disk.machineId);
}

class Sending {
  readonly #services: MachineServices;
  readonly #disk: FollowingDisk;
  readonly #onTrouble: (isStuck: boolean) => void;
  readonly #ended = new AbortController();
  readonly #signal: AbortSignal;
  #isComplete = false;
  /** Since when nothing has arrived, monotonic; null: it does. */
  #stuckSince: number | null = null;
  #isNoted = false;

  constructor(
    services: MachineServices,
    disk: FollowingDisk,
    { stopping, onTrouble }: { readonly stopping: AbortSignal; readonly onTrouble: (isStuck: boolean) => void },
  ) {
    this.#services = services;
    this.#disk = disk;
    this.#onTrouble = onTrouble;
    this.#signal = AbortSignal.any([stopping, this.#ended.signal]);
  }

  /** Whether all of the disk has arrived. */
  async run(): Promise<boolean> {
    await Promise.all([this.#keep(), ...LANES.map((kind) => this.#lane(kind))]);
    return this.#isComplete;
  }

  /** Keeps the lease. */
  async #keep(): Promise<void> {
    const { context } = this.#services;
    while (!this.#signal.aborted) {
      await context.clock.sleep(KEEP_PERIOD_MS, this.#signal);
      if (this.#signal.aborted) return;
      // While the database does not answer, no other server claims it.
      const isKept = await keepFollowing(context, this.#disk, FOLLOWING_LEASE_MS).catch(() => true);
      if (!isKept) this.#ended.abort(new Error("the disk is not sent by this server any more"));
    }
  }

  async #lane(kind: WantedKind): Promise<void> {
    const { clock } = this.#services.context;
    while (!this.#signal.aborted) {
      try {
        const hasSent = await this.#sendNext(kind);
        if (hasSent) this.#noteArrival();
      } catch (error) {
        if (this.#signal.aborted) return;
        this.#noteTrouble(messageOf(error));
        await clock.sleep(RETRY_MS, this.#signal);
      }
    }
  }

  /** Whether something was sent. */
  async #sendNext(kind: WantedKind): Promise<boolean> {
    const { cache, link } = this.#services;
    const { machineId, tenantId, moveId, nodeId } = this.#disk;
    const machine = await cache.readAny(machineId);
    if (machine === undefined || machine.deletedAt !== null || machine.nodeId === null) {
      this.#ended.abort(new Error("the machine was deleted"));
      return false;
    }
    const call: MoveCall = { tenantId, machineId, moveId, signal: this.#signal };
    const target = nodeOf(machine);
    const { isComplete, wanted } = await wantedBlocks(link, target, call, { kind, waitMs: WAIT_MS });
    if (isComplete) {
      this.#isComplete = true;
      this.#ended.abort(new Error("all of the disk has arrived"));
    }
    if (wanted === null) return false;
    const source = await nodeAddress(this.#services, nodeId);
    const { start, end } = wanted;
    await relayFile(link, { source, target }, call, {
      file: { name: "disk", from: start },
      bytes: end - start,
      onBytes: () => undefined,
    });
    return true;
  }

  #noteTrouble(message: string): void {
    const { context, activity } = this.#services;
    const now = context.clock.monotonic();
    this.#stuckSince ??= now;
    if (this.#isNoted || now - this.#stuckSince < TROUBLE_MS) return;
    this.#isNoted = true;
    this.#onTrouble(true);
    const text = `its disk does not arrive from node ${this.#disk.nodeId}, and what reads the rest of it waits: ${message}`;
    activity.note(this.#disk.machineId, "warn", text);
  }

  #noteArrival(): void {
    if (this.#isNoted) {
      this.#onTrouble(false);
      this.#services.activity.note(this.#disk.machineId, "info", "its disk arrives again");
    }
    this.#stuckSince = null;
    this.#isNoted = false;
  }
}

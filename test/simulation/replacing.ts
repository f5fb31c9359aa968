/**
 * What must be true at the moment of a decision about machines of pools: that a node is lost, that a machine
 * is discarded, that one is claimed or used. Compared with what really runs, and with the rules of decision
 * 63, which are written here once more.
 */
import type { SeenNode, Notice } from "./watch.ts";
import type { Program, World } from "./world.ts";

/** A machine is replaced after so much silence, by the clock of a server. */
const SILENT_MS_MIN = 30_000;
/** A server decides nothing before it has listened for so long. */
const LISTENING_MS_MIN = 30_000;
/** A node is overdue after so much silence, with what may pass between the decision and its statement. */
const OVERDUE_MS = 12_000 + 500;
const LOSS_WINDOW_MS = 10 * 60_000;

export interface ReplacingOptions {
  readonly world: World;
  /** The nodes on which a VM of the machine exists now. */
  readonly runsOn: (machineId: string) => readonly string[];
  /**
   * How far the clocks of servers have been apart: one may have received the heartbeat, and another one
   * discards.
   */
  readonly serversApartMs: () => number;
  /** Whether an operator has called this server to replace what is lost. */
  readonly isOperator: (server: Program) => boolean;
}

export class Replacing {
  readonly #options: ReplacingOptions;
  /** Machines that were discarded because their node was lost. */
  readonly replaced = new Set<string>();
  /** Machines that were used, and the use was answered. */
  readonly used = new Set<string>();
  readonly #claimed = new Set<string>();
  /** How often each happened, for the counters. */
  readonly counts = { lost: 0, lostByOperator: 0, replaced: 0, claimed: 0, used: 0 };

  constructor(options: ReplacingOptions) {
    this.#options = options;
  }

  /** A statement of this server has decided something. */
  notice(notice: Notice, server: Program | null): void {
    if (notice.kind === "lost") this.#lost(notice.nodeId, notice.nodes, server);
    else if (notice.kind === "discarded") this.#discarded(notice);
    else this.#claim(notice);
  }

  /** A VM of the machine begins. */
  begins(machineId: string, node: string): void {
    if (this.replaced.has(machineId))
      this.#options.world.violate(`machine ${machineId} was replaced, and begins again on ${node}`);
  }

  #lost(nodeId: string, nodes: readonly SeenNode[], server: Program | null): void {
    const { world, isOperator } = this.#options;
    const lost = nodes.find(({ id }) => id === nodeId);
    world.note(
      `${nodeId} is lost: ${nodes.map(({ id, status, silentMs }) => `${id} ${status} ${silentMs}`).join(", ")}`,
    );
    if (server !== null && isOperator(server)) {
      this.counts.lostByOperator += 1;
      return;
    }
    this.counts.lost += 1;
    const expected = nodes.filter(
      ({ status, isInMaintenance, lostMs }) =>
        ["ready", "draining", "unreachable"].includes(status) &&
        !isInMaintenance &&
        (lostMs === null || lostMs < LOSS_WINDOW_MS),
    );
    const silent = expected.filter(({ silentMs }) => silentMs >= OVERDUE_MS);
    const isHeld = silent.length >= expected.length || (silent.length >= 2 && silent.length * 3 >= expected.length);
    if (isHeld)
      world.violate(`${nodeId} counts as lost, and ${silent.length} of ${expected.length} expected nodes are silent`);
    if (lost?.isInMaintenance === true) world.violate(`${nodeId} counts as lost, and is under maintenance`);
    const listenedMs = server === null ? Number.POSITIVE_INFINITY : world.now - server.listensSince;
    if (listenedMs < LISTENING_MS_MIN)
      world.violate(`${nodeId} counts as lost for ${server?.name}, which has listened for ${listenedMs.toFixed()} ms`);
  }

  #discarded(notice: Extract<Notice, { kind: "discarded" }>): void {
    const { machineId, isClaimed, isPoolDeleted, fence, node } = notice;
    const { world, runsOn, serversApartMs } = this.#options;
    if (isClaimed || this.#claimed.has(machineId)) world.violate(`machine ${machineId} was claimed, and is discarded`);
    if (this.used.has(machineId)) world.violate(`machine ${machineId} was used, and is discarded`);
    // What was in a deleted pool is not replaced.
    if (isPoolDeleted || node === null || node.status !== "unreachable" || node.lostMs === null || fence === null)
      return;
    world.note(`machine ${machineId} is replaced, ${node.silentMs} ms after the last heartbeat of ${node.id}`);
    this.counts.replaced += 1;
    this.replaced.add(machineId);
    if (node.silentMs < SILENT_MS_MIN - serversApartMs())
      world.violate(`machine ${machineId} is replaced ${node.silentMs} ms after the last heartbeat of ${node.id}`);
    const [place] = runsOn(machineId);
    if (place !== undefined) world.violate(`machine ${machineId} is replaced, and its VM runs on ${place}`);
  }

  /** The owner of a waiting machine got an answer to its use. */
  use(machineId: string): void {
    this.counts.used += 1;
    this.used.add(machineId);
    if (this.replaced.has(machineId))
      this.#options.world.violate(`machine ${machineId} was replaced, and its use is answered`);
  }

  #claim({ machineId, isDiscarded }: Extract<Notice, { kind: "claimed" }>): void {
    const { world } = this.#options;
    this.counts.claimed += 1;
    this.#claimed.add(machineId);
    if (this.used.has(machineId)) world.violate(`machine ${machineId} was used, and leaves its pool later`);
    if (isDiscarded || this.replaced.has(machineId))
      world.violate(`machine ${machineId} was discarded, and is claimed`);
  }
}

/**
 * The kernels' timers of simulated hosts, which end fenced VMs, and what servers acknowledged of each host:
 * the truth with which decisions about silent nodes are compared (decision 63).
 *
 * Always: a VM ends when its timer does, whatever became of its agent. It does not run again, also when an
 * agent that was stopped continues to write its file.
 */
import type { SimulatedNode } from "./node.ts";
import type { World } from "./world.ts";

/** As decision 63 promises; not taken from the product, so that a change there is found. */
const FENCED_MS = 21_000;

export interface FencedVm {
  readonly bootId: string;
  readonly machineId: string;
  readonly node: string;
  readonly to: number | null;
}

export class Fences {
  readonly #world: World;
  readonly #nodes: ReadonlyMap<string, SimulatedNode>;
  readonly #end: (vm: FencedVm) => void;
  /** By boot: when its timer ends, in milliseconds of the world. */
  readonly #until = new Map<string, number>();
  readonly #planned = new Set<string>();
  /** Boots that a timer has ended. */
  readonly ended = new Set<string>();
  /** By node: when the last heartbeat was sent that a server acknowledged. */
  readonly #acknowledged = new Map<string, number>();

  constructor(world: World, nodes: readonly SimulatedNode[], end: (vm: FencedVm) => void) {
    this.#world = world;
    this.#nodes = new Map(nodes.map((node) => [node.name, node]));
    this.#end = end;
  }

  acknowledged(node: string, sentAt: number): void {
    this.#acknowledged.set(node, Math.max(sentAt, this.#acknowledged.get(node) ?? 0));
  }

  /** When the last heartbeat of a node was sent that was acknowledged. */
  acknowledgedAt(node: string): number {
    return this.#acknowledged.get(node) ?? Number.NEGATIVE_INFINITY;
  }

  /** A VM has, or has no more, a timer that ends at this time of its host's clock. */
  set(vm: FencedVm, hostUntil: number | null): void {
    const { bootId, machineId, node } = vm;
    if (hostUntil === null) {
      this.#until.delete(bootId);
      return;
    }
    const { rate, bootedMsBefore } = this.#nodes.get(node) as SimulatedNode;
    const until = (hostUntil - bootedMsBefore) / rate;
    const sentAt = this.acknowledgedAt(node);
    const allowed = sentAt + FENCED_MS / rate;
    if (until > allowed + 1)
      this.#world.violate(
        sentAt < 0
          ? `machine ${machineId} is fenced on ${node}, of which no heartbeat was acknowledged`
          : `the fence of machine ${machineId} on ${node} ends ${((until - sentAt) / 1000).toFixed(1)} s after the last acknowledged heartbeat was sent`,
      );
    this.#until.set(bootId, until);
    if (!this.#planned.has(bootId)) this.#plan(vm, until);
  }

  has(bootId: string): boolean {
    return this.#until.has(bootId);
  }

  #plan(vm: FencedVm, until: number): void {
    this.#planned.add(vm.bootId);
    this.#world.after(until - this.#world.now, null, () => {
      this.#planned.delete(vm.bootId);
      const current = this.#until.get(vm.bootId);
      if (current === undefined || vm.to !== null) return;
      if (current > this.#world.now) return this.#plan(vm, current);
      this.ended.add(vm.bootId);
      this.#end(vm);
    });
  }
}

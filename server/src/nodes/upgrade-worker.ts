/**
 * Upgrades nodes in place, one after the other: has each agent restart as the program that is installed on
 * its host, and waits until the new one has reported everything. Machines run on.
 *
 * Always:
 * - A node is begun only after the one before it has returned, with its machines. The first that fails ends
 *   the operation; the remaining ones are not touched.
 * - The VMMs of a node's machines are replaced, if that was requested, by its new agent and before the next
 *   node (vmm-worker.ts).
 * - A step that is done twice restarts the agent once: the request names the incarnation that is to end.
 *
 * If the server dies, another one continues. If it does not know any more which incarnation was to end,
 * because the restart had happened, it restarts that agent once more: nothing depends on how often an agent
 * restarts.
 */
import { Refusal } from "@flotilla/contract/errors";
import { restartAgent } from "../link/agent.ts";
import { NodeUnreachable } from "../link/refusals.ts";
import type { MachineServices } from "../machines/services.ts";
import { listMachinesOfNode } from "../machines/store.ts";
import type { OperationRun, OperationWorker } from "../family.ts";
import { replaceVmmsOf, vmmStepOf } from "./vmm-worker.ts";
import { notFound } from "../missing.ts";
import { type AgentRecord, findAgent, findNode, type NodeRecord } from "./store.ts";

/** Time for one node: the check of its program, its restart, and the adoption of its machines. */
const RETURN_MS_MAX = 2 * 60_000;
export const UPGRADE_MS_MAX = RETURN_MS_MAX + 60_000;
const POLL_MS = 500;
const STOPPED_NAMED_MAX = 5;

export const upgradeStepOf = (nodeId: string): string => `upgrade ${nodeId}`;

export interface UpgradeInput {
  readonly nodeIds: readonly string[];
  /** Also the VMMs of their machines; absent: false. */
  readonly vmms?: boolean;
}

export function nodeUpgradeWorker(services: Pick<MachineServices, "context" | "link">): OperationWorker {
  return {
    kind: "node upgrade",
    async work(run) {
      const { nodeIds, vmms = false } = run.operation.input as UpgradeInput;
      for (const nodeId of nodeIds) {
        await run.step(upgradeStepOf(nodeId), (say) => new NodeUpgrade(services, run, nodeId).upgrade(say));
        if (vmms) await run.step(vmmStepOf(nodeId), (say) => replaceVmmsOf(services, { run, nodeId }, say));
      }
    },
  };
}

class NodeUpgrade {
  readonly #services: Pick<MachineServices, "context" | "link">;
  readonly #run: OperationRun;
  readonly #nodeId: string;

  constructor(services: Pick<MachineServices, "context" | "link">, run: OperationRun, nodeId: string) {
    this.#services = services;
    this.#run = run;
    this.#nodeId = nodeId;
  }

  async upgrade(say: (message: string) => void): Promise<string> {
    const { context, link } = this.#services;
    const node = await findNode(context.db, this.#nodeId);
    const refusal = refusalFor(this.#nodeId, node);
    const before = await findAgent(context.db, this.#nodeId);
    if (refusal !== null || node === undefined || before === undefined || before.bootId === null)
      throw (
        refusal ?? new Refusal("unavailable", `node ${this.#nodeId} has not reported yet; try again in a few seconds`)
      );
    const boots = await this.#runningBoots();
    say("its agent restarts");
    const address = { nodeId: this.#nodeId, address: node.address };
    const { signal } = this.#run;
    await restartAgent(link, address, { agentBootId: before.bootId, signal }).catch((error: unknown) => {
      // Its answer may have been lost.
      if (!(error instanceof NodeUnreachable)) throw error;
    });
    const after = await this.#returned(before.bootId);
    return resultText({ before, after, boots, now: await this.#runningBoots() });
  }

  /** The running machines of the node, each with its boot. */
  async #runningBoots(): Promise<ReadonlyMap<string, string | null>> {
    const machines = await listMachinesOfNode(this.#services.context.db, this.#nodeId);
    const running = machines.filter(({ observedState }) => observedState === "running");
    return new Map(running.map(({ id, observedBootId }) => [id, observedBootId]));
  }

  /**
   * Waits until another incarnation of the agent has reported twice: its first report has everything that the
   * node has, and it sends the second when the first was applied.
   */
  async #returned(bootId: string): Promise<AgentRecord> {
    const { context } = this.#services;
    const { clock } = context;
    const since = clock.monotonic();
    let firstAt: number | null = null;
    while (clock.monotonic() - since < RETURN_MS_MAX) {
      const agent = await findAgent(context.db, this.#nodeId);
      if (agent === undefined) throw new Refusal("not_found", `node ${this.#nodeId} is not in the cluster any more`);
      if (agent.bootId !== null && agent.bootId !== bootId) {
        if (firstAt !== null && agent.reportedAt !== null && agent.reportedAt > firstAt) return agent;
        firstAt ??= agent.reportedAt;
      }
      await clock.sleep(POLL_MS, this.#run.signal);
      this.#run.signal.throwIfAborted();
    }
    const minutes = RETURN_MS_MAX / 60_000;
    const text = `the agent of node ${this.#nodeId} has not returned within ${minutes} min; its machines run on: see its log on its host. No other node was touched after it`;
    throw new Refusal("unavailable", text);
  }
}

/** Why a node is not upgraded from here; null: it may be. */
export function refusalFor(id: string, node: Pick<NodeRecord, "status"> | undefined): Refusal | null {
  switch (node?.status) {
    case "ready":
      return null;
    case undefined:
      return notFound("node", id);
    case "unreachable":
      return new Refusal("unavailable", `node ${id} does not report; start its agent on its host, as the new release`);
    case "draining":
    case "drained":
      return new Refusal(
        "conflict",
        `node ${id} is ${node?.status}, and a restart of its agent makes it ready: cancel its drain first, or restart the agent on its host`,
      );
    default:
      return new Refusal("conflict", `node ${id} is ${node?.status}`);
  }
}

interface Result {
  readonly before: AgentRecord;
  readonly after: AgentRecord;
  readonly boots: ReadonlyMap<string, string | null>;
  readonly now: ReadonlyMap<string, string | null>;
}

/** What became of the node. Machines whose owners stopped them meanwhile are named too. */
function resultText({ before, after, boots, now }: Result): string {
  const isSame = before.release === after.release;
  const release = isSame
    ? `restarted as release ${after.release ?? "unknown"}, which it was before`
    : `release ${before.release ?? "unknown"} → ${after.release ?? "unknown"}`;
  const ended = [...boots].filter(([id, boot]) => now.get(id) !== boot).map(([id]) => id);
  const kept = boots.size - ended.length;
  const running = `${kept} ${kept === 1 ? "machine runs" : "machines run"} on`;
  if (ended.length === 0) return `${release}; ${running}`;
  const names = ended.slice(0, STOPPED_NAMED_MAX).join(", ");
  const more = ended.length > STOPPED_NAMED_MAX ? ", …" : "";
  return `${release}; ${running}; ${ended.length} ended or restarted meanwhile, see their events: ${names}${more}`;
}

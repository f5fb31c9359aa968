/**
 * Reads what the findings of the fleet are made of (findings.ts): rows, authorities, and an answer of each
 * node.
 *
 * Always: nodes that do not report are not called; one that does not answer is a fact, not a failure.
 */
import { mapAtMost } from "@flotilla/base/concurrency";
import { ownMessageOf } from "@flotilla/base/errors";
import { Refusal } from "@flotilla/contract/errors";
import type { MachineServices } from "../machines/services.ts";
import type { FleetState } from "./findings.ts";
import { listServers } from "./servers-store.ts";
import { listNodes, type NodeRecord } from "./store.ts";

const NODES_AT_A_TIME = 16;

/** `asker`: the tenant for whom the nodes' answers are read. Throws the signal's reason between two nodes. */
export async function readFleetState(
  services: Pick<MachineServices, "context" | "fleet" | "link">,
  { asker, signal }: { readonly asker: string; readonly signal: AbortSignal },
): Promise<FleetState> {
  const { context, fleet } = services;
  const [servers, nodes, authorities] = await Promise.all([
    listServers(context.db),
    listNodes(context.db),
    fleet.trust.list().catch((error: unknown) => {
      if (error instanceof Refusal) return error.message;
      throw error;
    }),
  ]);
  const called = nodes.filter(({ status }) => status !== "revoked" && status !== "unreachable");
  const answers = await mapAtMost(NODES_AT_A_TIME, called, async (node) => {
    signal.throwIfAborted();
    return [node.id, await answerOf(services, node, asker)] as const;
  });
  return { servers, nodes, authorities, answers: new Map(answers), now: context.clock.now() };
}

/** How many images it has, or why it does not say. */
const answerOf = (
  { link }: Pick<MachineServices, "link">,
  { id, address }: NodeRecord,
  asker: string,
): Promise<number | string> =>
  link.listImages({ nodeId: id, address }, null, asker).then(
    (images) => images.length,
    (error: unknown) => ownMessageOf(error),
  );

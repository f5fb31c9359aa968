/**
 * The handlers of nodes: list, register, heartbeat, drain, revoke, decommission, and the authorities that
 * they trust.
 */
import { Refusal } from "@flotilla/contract/errors";
import { parkedAddress } from "@flotilla/contract/link/fleet";
import { OWN_LINK_VERSIONS } from "@flotilla/contract/link/version";
import type { NodeInfo } from "@flotilla/contract/nodes";
import type { Fleet } from "../link/reach.ts";
import type { HandlersOf } from "../api/handler.ts";
import { listPage } from "../api/list-page.ts";
import { explainMachinePlacement, explainPlacement } from "../machines/placement-explanation.ts";
import type { MachineServices } from "../machines/services.ts";
import { closedToGuests } from "./closed.ts";
import { decommissionNode } from "./decommission.ts";
import { cancelDrain, requestDrain } from "./drain.ts";
import { planDrain } from "./drain-preview.ts";
import { findingsOf } from "./findings.ts";
import { readFleetState } from "./fleet-state.ts";
import { applyHeartbeat, heartbeatWriter } from "./heartbeat.ts";
import { registerNode } from "./register.ts";
import { readLost, replaceLost } from "./replace-lost.ts";
import { requestUpgrade } from "./upgrade.ts";
import { operationInfo } from "../operations/view.ts";
import { notFound } from "../missing.ts";
import { revokeNode } from "./revocation-store.ts";
import { listServers } from "./servers-store.ts";
import { cordonNode, listNodes, maintainNode, type NodeRecord, uncordonNode } from "./store.ts";
import { fleetAuthority, fleetMembership, nodeInfo, serverInfo } from "./view.ts";

export function nodeHandlers(
  services: MachineServices,
  databaseUrl: string | null,
): HandlersOf<
  | "listNodes"
  | "listServers"
  | "listFindings"
  | "registerNode"
  | "heartbeatNode"
  | "drainNode"
  | "planDrain"
  | "cancelDrain"
  | "listLostNodes"
  | "replaceLostNodes"
  | "upgradeNodes"
  | "revokeNodeCredential"
  | "decommissionNode"
> {
  const { context, fleet } = services;
  const { trust } = fleet;
  const heartbeats = heartbeatWriter(context);
  return {
    ...operationHandlers(services),
    ...leavingHandlers(services),
    async listNodes({ query }) {
      const found = (await listNodes(context.db)).map((node) => nodeInfo(asReached(node, fleet)));
      return { status: 200, ...listPage(found, query, { path: "/v1/nodes", keyOf: ({ id }) => id }) };
    },
    async registerNode({ caller, body, log }) {
      const { node, credential, fleet: facts } = await registerNode({ context, trust }, caller, body);
      log.info({ nodeId: node.id, address: node.address, isNew: credential !== null }, "a node has registered");
      return {
        status: 200,
        body: {
          ...nodeInfo(node),
          credential,
          fleet: facts === null ? null : fleetMembership(facts),
          link: OWN_LINK_VERSIONS,
        },
      };
    },
    async heartbeatNode({ caller, params, body }) {
      if (caller.nodeId !== params.id)
        throw new Refusal("not_found", `node ${params.id} is not the one that this credential belongs to`);
      const { acceptedAt, absentMachines, endedMoves, ...acknowledged } = await applyHeartbeat(
        { ...services, heartbeats },
        { nodeId: params.id, certificate: caller.certificate },
        body ?? null,
      );
      return {
        status: 200,
        body: {
          acceptedAt: new Date(acceptedAt).toISOString(),
          link: OWN_LINK_VERSIONS,
          ...acknowledged,
          ...(absentMachines === undefined ? {} : { absentMachines: [...absentMachines] }),
          ...(endedMoves === undefined ? {} : { endedMoves: [...endedMoves] }),
          closedToGuests: [...closedToGuests({ ...(await trust.listening()), databaseUrl })],
          ...(caller.certificate === null ? {} : { fleet: fleetMembership(await trust.factsFor(caller.certificate)) }),
        },
      };
    },
  };
}

/** A node that reports and keeps no connection open to this server is shown as what it is for callers. */
function asReached(node: NodeRecord, { parked }: Pick<Fleet, "parked">): NodeRecord {
  if (node.status !== "ready" || node.address !== parkedAddress(node.id)) return node;
  return parked.isMissing(node.id) ? { ...node, status: "unreachable" } : node;
}

/** The handlers of how nodes leave the fleet. */
function leavingHandlers({
  context,
}: Pick<MachineServices, "context">): HandlersOf<"revokeNodeCredential" | "decommissionNode"> {
  return {
    async revokeNodeCredential({ params }) {
      if (!(await revokeNode(context.db, params.id, context.clock.now()))) throw notFound("node", params.id);
      await context.db.notify("nodes", params.id);
      return { status: 204 };
    },
    async decommissionNode({ params }) {
      await decommissionNode(context, params.id);
      return { status: 204 };
    },
  };
}

/** The handlers of what an operator does to nodes by an operation, and to those that do not report. */
function operationHandlers(
  services: MachineServices,
): HandlersOf<
  | "drainNode"
  | "planDrain"
  | "cancelDrain"
  | "upgradeNodes"
  | "listServers"
  | "listFindings"
  | "listLostNodes"
  | "replaceLostNodes"
> {
  return {
    async listServers() {
      return { status: 200, body: (await listServers(services.context.db)).map(serverInfo) };
    },
    async listFindings({ caller: { tenantId }, signal }) {
      return { status: 200, body: [...findingsOf(await readFleetState(services, { asker: tenantId, signal }))] };
    },
    async listLostNodes() {
      return { status: 200, body: await readLost(services.context) };
    },
    async replaceLostNodes({ body }) {
      return { status: 200, body: await replaceLost(services.context, body?.nodeIds ?? null) };
    },
    async upgradeNodes(request) {
      const operation = await requestUpgrade(services, {
        operationId: request.newId("operation"),
        tenantId: request.caller.tenantId,
        nodeIds: request.body?.nodeIds ?? null,
        vmms: request.body?.vmms ?? false,
      });
      return { status: 202, body: operationInfo(operation) };
    },
    async drainNode(request) {
      const { node, operationId } = await requestDrain(services, {
        operationId: request.newId("operation"),
        tenantId: request.caller.tenantId,
        nodeId: request.params.id,
        deadlineSeconds: request.body?.deadlineSeconds ?? null,
      });
      return { status: 200, body: { ...nodeInfo(node), operationId } };
    },
    async planDrain({ params, signal }) {
      return { status: 200, body: await planDrain(services, params.id, signal) };
    },
    async cancelDrain({ params }) {
      const { node, operationId } = await cancelDrain(services, params.id);
      return { status: 200, body: { ...nodeInfo(node), operationId } };
    },
  };
}

/** The handlers of the authorities that nodes trust. */
export function authorityHandlers({
  trust,
}: Fleet): HandlersOf<"listFleetAuthorities" | "rotateFleetAuthority" | "removeFleetAuthority"> {
  const authorities = async () => (await trust.list()).map((each, index) => fleetAuthority(each, index === 0));
  return {
    async listFleetAuthorities() {
      return { status: 200, body: await authorities() };
    },
    async rotateFleetAuthority() {
      await trust.rotate();
      return { status: 200, body: await authorities() };
    },
    async removeFleetAuthority({ params }) {
      await trust.remove(params.fingerprint);
      return { status: 204 };
    },
  };
}

/** The handlers of where new machines are placed. */
export function placementHandlers(
  services: Pick<MachineServices, "ceilingsOf" | "context" | "nodes" | "plansUrl" | "registries" | "registry">,
): HandlersOf<"cordonNode" | "maintainNode" | "uncordonNode" | "explainPlacement" | "explainMachinePlacement"> {
  const { db, clock } = services.context;
  const changed = async (id: string, node: NodeRecord | undefined): Promise<NodeInfo> => {
    if (node === undefined) throw notFound("node", id);
    await db.notify("nodes", id);
    return nodeInfo(node);
  };
  return {
    async cordonNode({ params: { id } }) {
      return { status: 200, body: await changed(id, await cordonNode(db, id, clock.now())) };
    },
    async maintainNode({ params: { id } }) {
      return { status: 200, body: await changed(id, await maintainNode(db, id, clock.now())) };
    },
    async uncordonNode({ params: { id } }) {
      return { status: 200, body: await changed(id, await uncordonNode(db, id)) };
    },
    async explainPlacement({ caller: { tenantId }, body }) {
      return { status: 200, body: await explainPlacement(services, tenantId, body) };
    },
    async explainMachinePlacement({ query: { machineId } }) {
      return { status: 200, body: await explainMachinePlacement(services, machineId) };
    },
  };
}

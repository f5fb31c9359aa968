/**
 * The handlers of branches.
 */
import { mapAtMost } from "@flotilla/base/concurrency";
import { machineNotFound } from "../auth/not-found.ts";
import type { HandlersOf } from "../api/handler.ts";
import type { NodeLink } from "../link/node-link.ts";
import { readMemoryUse } from "../link/points.ts";
import { type MachineRecord, nodeOf } from "../machines/record.ts";
import type { MachineServices } from "../machines/services.ts";
import { phaseOf } from "../machines/state.ts";
import { findAnyMachine } from "../machines/store.ts";
import { machineInfo } from "../machines/view.ts";
import { adoptSource } from "./adopt.ts";
import { freshOperationId } from "./awaited.ts";
import { branchMachine } from "./branch.ts";
import { listLineage } from "./lineage-store.ts";
import { namesOf } from "./requested.ts";

/** Nodes that are asked at the same time for the memory of machines. */
const NODE_CALLS_MAX = 16;

export function branchHandlers(
  services: MachineServices,
): HandlersOf<"adoptMachine" | "createBranch" | "createBranches" | "getLineage"> {
  const { addresses, cache, context, link } = services;
  return {
    async createBranch(request) {
      const { caller, params, body, signal } = request;
      const operationId = await freshOperationId(context, caller.tenantId, request.newId("operation"));
      const [clone] = await branchMachine(services, {
        ...{ operationId, ...caller, machineId: params.id, names: [body.name] },
        ...{ ports: body.ports ?? null, secrets: body.secrets, secretEnv: body.secretEnv, signal },
      });
      if (clone === undefined) throw machineNotFound(params.id);
      return { status: 201, body: machineInfo(clone, addresses) };
    },
    async createBranches(request) {
      const { caller, params, body, signal } = request;
      const name = { tenantId: caller.tenantId, id: params.id };
      const source = cache.current(name) ?? (await cache.read(name));
      if (source === undefined) throw machineNotFound(params.id);
      const operationId = await freshOperationId(context, caller.tenantId, request.newId("operation"));
      const clones = await branchMachine(services, {
        ...{ operationId, ...caller, machineId: params.id, names: namesOf(body, source) },
        ...{ ports: body.ports ?? null, secrets: body.secrets, secretEnv: body.secretEnv, signal },
      });
      return { status: 201, body: { clones: clones.map((clone) => machineInfo(clone, addresses)) } };
    },
    async adoptMachine({ caller: { tenantId }, params: { id }, body }) {
      const { branch, source } = await adoptSource(services, { tenantId, id, keepsSource: body?.source === "keep" });
      return {
        status: 200,
        body: {
          machine: machineInfo(branch, addresses),
          source: source === null ? null : machineInfo(source, addresses),
        },
      };
    },
    async getLineage({ caller: { tenantId }, params: { id }, signal }) {
      const machine = await findAnyMachine(context.db, id);
      if (machine?.tenantId !== tenantId || machine.deletedAt !== null) throw machineNotFound(id);
      const { rootId, machines } = await listLineage(context.db, machine);
      return {
        status: 200,
        body: {
          rootMachineId: rootId,
          machines: machines.map((each) => machineInfo(each, addresses)),
          memory: await memoryOf(link, machines, signal),
        },
      };
    },
  };
}

/** The memory of those that run. A node that does not answer says nothing. */
async function memoryOf(link: NodeLink, machines: readonly MachineRecord[], signal: AbortSignal) {
  const running = machines.filter((machine) => machine.nodeId !== null && phaseOf(machine) === "running");
  const uses = await mapAtMost(NODE_CALLS_MAX, running, async (machine) => {
    const use = await readMemoryUse(link, nodeOf(machine), { machineId: machine.id, signal });
    return use === null ? [] : [{ machineId: machine.id, ...use }];
  });
  return uses.flat();
}

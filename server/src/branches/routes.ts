/**
 * The handlers of branches.
 */
import { deadlineSignal } from "@flotilla/base/abort";
import { mapAtMost } from "@flotilla/base/concurrency";
import { machineNotFound } from "../auth/not-found.ts";
import type { HandlersOf } from "../api/handler.ts";
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

/** Machines whose nodes are asked at the same time for their memory, and how long all of it may take. */
const NODE_CALLS_MAX = 16;
const MEMORY_MS_MAX = 5_000;

export function branchHandlers(
  services: MachineServices,
): HandlersOf<"adoptMachine" | "createBranch" | "createBranches" | "getLineage"> {
  const { addresses, cache, context } = services;
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
          memory: await memoryOf(services, machines, signal),
        },
      };
    },
  };
}

/** The memory of those that run, of which the nodes answer in time. */
async function memoryOf(
  { context: { clock }, link }: Pick<MachineServices, "context" | "link">,
  machines: readonly MachineRecord[],
  signal: AbortSignal,
) {
  const running = machines.filter((machine) => machine.nodeId !== null && phaseOf(machine) === "running");
  const limit = deadlineSignal(clock, MEMORY_MS_MAX, signal);
  try {
    const uses = await mapAtMost(NODE_CALLS_MAX, running, async (machine) => {
      if (limit.signal.aborted) return [];
      const reading = readMemoryUse(link, nodeOf(machine), { machineId: machine.id, signal: limit.signal });
      const use = await reading.catch((error: unknown) => {
        if (!limit.signal.aborted) throw error;
        return null;
      });
      return use === null ? [] : [{ machineId: machine.id, ...use }];
    });
    signal.throwIfAborted();
    return uses.flat();
  } finally {
    limit.dispose();
  }
}

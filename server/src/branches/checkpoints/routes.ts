/**
 * The handlers of checkpoints.
 */
import type { CheckpointInfo } from "@flotilla/contract/checkpoints";
import type { HandlersOf } from "../../api/handler.ts";
import { listPage } from "../../api/list-page.ts";
import { machineNotFound } from "../../auth/not-found.ts";
import type { MachineServices } from "../../machines/services.ts";
import { machineInfo } from "../../machines/view.ts";
import { notFound } from "../../missing.ts";
import { freshOperationId } from "../awaited.ts";
import { branchCheckpoint } from "../branch.ts";
import { namesOf } from "../requested.ts";
import { makeCheckpoint, restoreCheckpoint } from "./checkpoint.ts";
import {
  type CheckpointName,
  type CheckpointRow,
  deleteCheckpoint,
  findCheckpoint,
  listCheckpoints,
  statusOf,
} from "./store.ts";

type Names =
  | "createCheckpoint"
  | "listMachineCheckpoints"
  | "listCheckpoints"
  | "getCheckpoint"
  | "deleteCheckpoint"
  | "restoreCheckpoint"
  | "branchCheckpoint";

export function checkpointHandlers(services: MachineServices): HandlersOf<Names> {
  const { addresses, cache, context } = services;
  const get = async (name: CheckpointName): Promise<CheckpointRow> => {
    const found = await findCheckpoint(context.db, name);
    if (found === undefined) throw notFound("checkpoint", name.id);
    return found;
  };
  return {
    async createCheckpoint(request) {
      const { caller, params, signal } = request;
      const { name = null, memory = null, secrets } = request.body ?? {};
      const operationId = await freshOperationId(context, caller.tenantId, request.newId("operation"));
      const made = await makeCheckpoint(services, {
        ...{ operationId, tenantId: caller.tenantId, machineId: params.id, name, hasMemory: memory },
        ...{ secrets: secrets ?? "refuse", signal },
      });
      return { status: 201, body: checkpointInfo(made) };
    },
    async listMachineCheckpoints({ caller: { tenantId }, params: { id } }) {
      if ((await cache.read({ tenantId, id })) === undefined) throw machineNotFound(id);
      const found = await listCheckpoints(context.db, { tenantId, machineId: id });
      return { status: 200, body: found.map(checkpointInfo) };
    },
    async listCheckpoints({ caller: { tenantId }, query }) {
      const found = (await listCheckpoints(context.db, { tenantId, machineId: null })).map(checkpointInfo);
      const keyOf = ({ createdAt, id }: CheckpointInfo): string => `${createdAt} ${id}`;
      const { body, headers } = listPage(found, query, { path: "/v1/checkpoints", keyOf });
      return { status: 200, body, headers };
    },
    async getCheckpoint({ caller: { tenantId }, params: { id } }) {
      return { status: 200, body: checkpointInfo(await get({ tenantId, id })) };
    },
    async deleteCheckpoint({ caller: { tenantId }, params }) {
      const { id } = await get({ tenantId, id: params.id });
      await deleteCheckpoint(context.db, { tenantId, id });
      return { status: 204 };
    },
    async restoreCheckpoint(request) {
      const { caller, params, body } = request;
      const machine = await restoreCheckpoint(services, {
        ...{ tenantId: caller.tenantId, keyId: caller.keyId, checkpoint: params.id },
        ...{ id: request.newId("machine"), name: body.name },
      });
      return { status: 201, body: machineInfo(machine, addresses) };
    },
    async branchCheckpoint(request) {
      const { caller, params, body, signal } = request;
      const { tenantId, keyId } = caller;
      const { id, name, machineName } = await get({ tenantId, id: params.id });
      const names = namesOf(body, { id, name: name ?? machineName });
      const operationId = await freshOperationId(context, tenantId, request.newId("operation"));
      const clones = await branchCheckpoint(services, {
        ...{ operationId, tenantId, keyId, checkpoint: id, names, ports: body.ports ?? null, signal },
      });
      return { status: 201, body: { clones: clones.map((clone) => machineInfo(clone, addresses)) } };
    },
  };
}

function checkpointInfo(checkpoint: CheckpointRow): CheckpointInfo {
  const { id, name, machineId, machineName, hasMemory, sizeBytes, nodeId, createdAt } = checkpoint;
  return {
    ...{ id, name, machineId, machineName, ...statusOf(checkpoint), hasMemory, sizeBytes, nodeId },
    createdAt: new Date(createdAt).toISOString(),
  };
}

/**
 * Serves /v1/pools: create, list, delete, claim.
 */
import { Refusal } from "@flotilla/contract/errors";
import { POOLS_MAX } from "@flotilla/contract/limits";
import type { PoolInfo } from "@flotilla/contract/pools";
import type { Static } from "@flotilla/contract/schema";
import type { HandlersOf } from "../api/handler.ts";
import { listPage } from "../api/list-page.ts";
import { refuseForbiddenSize } from "../machines/create.ts";
import { checkReference } from "../machines/image-reference.ts";
import type { MachineServices } from "../machines/services.ts";
import { machineInfo } from "../machines/view.ts";
import { claimMachine } from "./claim.ts";
import { statusOf } from "./state.ts";
import { type CountedPool, insertPool, listPools, markPoolDeleted } from "./store.ts";
import { notFound } from "../missing.ts";

type Names = "listPools" | "createPool" | "deletePool" | "claimMachine";

function poolInfo(pool: CountedPool): Static<typeof PoolInfo> {
  const { id, image, targetSize, idleCount, busyCount, cpus, memoryMb, hasNetwork, maxIdleSeconds, createdAt } = pool;
  const status = statusOf(pool);
  return {
    ...{ id, image, targetSize, idleCount, busyCount, status },
    error: status === "degraded" ? pool.error : null,
    ...{
      cpus,
      memoryMb,
      network: hasNetwork,
      maxIdleSecs: maxIdleSeconds,
      createdAt: new Date(createdAt).toISOString(),
    },
  };
}

export function poolHandlers(services: MachineServices): HandlersOf<Names> {
  const { context, addresses } = services;
  const { db, clock } = context;
  return {
    listPools: async ({ caller, query }) => {
      const pools = (await listPools(db, caller.tenantId)).map(poolInfo);
      const keyOf = ({ createdAt, id }: Static<typeof PoolInfo>): string => `${createdAt} ${id}`;
      return { status: 200, ...listPage(pools, query, { path: "/v1/pools", keyOf }) };
    },
    createPool: async (request) => {
      const { caller, body } = request;
      const named = body.tenantId ?? null;
      if (named !== null && !caller.isAdmin)
        throw new Refusal(
          "missing_scope",
          "missing scope: admin; leave tenantId out to make a pool of your own tenant",
          { field: "tenantId" },
        );
      checkReference(services.registries, body.image);
      await refuseForbiddenSize(services, named ?? caller.tenantId, body);
      const pool = {
        id: request.newId("pool"),
        tenantId: named ?? caller.tenantId,
        createdBy: caller.keyId,
        image: body.image,
        cpus: body.cpus ?? null,
        memoryMb: body.memoryMb ?? null,
        hasNetwork: body.network ?? true,
        maxIdleSeconds: body.maxIdleSecs || null,
        targetSize: body.targetSize ?? 1,
        createdAt: clock.now(),
      };
      const made = await insertPool(db, pool, POOLS_MAX);
      if (made === undefined) throw notFound("tenant", pool.tenantId);
      if (made === "too_many")
        throw new Refusal("quota_exceeded", `this tenant has ${POOLS_MAX} pools, which is the maximum; delete one`);
      await db.notify("pools", pool.id);
      return { status: 200, body: poolInfo({ ...NOT_FILLED, ...pool }) };
    },
    deletePool: async ({ caller: { tenantId }, params: { id } }) => {
      if (!(await markPoolDeleted(db, { tenantId, id }, clock.now()))) throw notFound("pool", id);
      await db.notify("pools", id);
      return { status: 204 };
    },
    claimMachine: async (request) => {
      const { caller, params, signal } = request;
      const claim = { poolId: params.id, claimId: request.newId("machine"), signal };
      const claimed = await claimMachine(services, caller, claim);
      if (claimed === undefined) throw notFound("pool", params.id);
      return { status: 200, body: machineInfo(claimed, addresses) };
    },
  };
}

const NOT_FILLED = { error: null, failures: 0, retryAt: null, isDeleted: false, idleCount: 0, busyCount: 0 } as const;

/**
 * Creates and changes tenants.
 *
 * Always: a change of status or plan takes effect on this server before the answer, on others within
 * milliseconds.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { CreateTenantRequest } from "@flotilla/contract/tenants";
import type { Context } from "../context.ts";
import {
  findTenant,
  findTenantNamed,
  insertTenant,
  planExists,
  type TenantChange,
  type TenantRow,
  updateTenant,
} from "./store.ts";
import { notFound } from "../missing.ts";

/**
 * `newId`: used if the request names no id. A repetition with the same one returns the tenant that was made.
 */
export async function createTenant(context: Context, request: CreateTenantRequest, newId: string): Promise<TenantRow> {
  const planId = request.planId ?? null;
  if (planId !== null) await requirePlan(context, planId);
  const id = request.id ?? newId;
  const at = context.clock.now();
  const row = await insertTenant(context.db, {
    ...{ id, name: request.name, planId, at, madeAs: newId },
    hasTestClock: request.testClock ?? false,
  });
  if (row === undefined) throw await nameTaken(context, { id, name: request.name });
  return row;
}

async function nameTaken({ db }: Context, { id, name }: Pick<TenantRow, "id" | "name">): Promise<Refusal> {
  const text =
    (await findTenant(db, id)) === undefined
      ? `the name ${name} is already that of tenant ${(await findTenantNamed(db, name))?.id}; choose another name`
      : `a tenant with the id ${id} exists already; choose another id`;
  return new Refusal("name_taken", text);
}

export async function changeTenant(context: Context, id: string, change: TenantChange): Promise<TenantRow> {
  if (change.planId !== undefined && change.planId !== null) await requirePlan(context, change.planId);
  const row = await updateTenant(context.db, id, change, context.clock.now());
  if (row === undefined) throw notFound("tenant", id);
  // The statement notifies the other servers; this one's caches drop the tenant before the answer.
  await context.db.notify("tenants", id);
  return row;
}

/** Plans are never removed, so one check is enough. */
async function requirePlan(context: Context, planId: string): Promise<void> {
  if (!(await planExists(context.db, planId))) throw notFound("plan", planId, "invalid_request");
}

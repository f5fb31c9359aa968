/**
 * Tenants and plans by their names, which are unique. Ids are recognized by their form, so that no list is
 * read for them.
 */
import type { Flotilla } from "@flotilla/sdk";
import { Failure } from "./failure.ts";

interface Named {
  readonly id: string;
  readonly name: string;
}

/** Throws a Failure when no tenant has this name. Reading names needs an admin key. */
export const findTenantId = (flotilla: Flotilla, reference: string): Promise<string> =>
  findId("tenant", reference, () => flotilla.listTenants());

/** Throws a Failure when no plan has this name. Reading names needs an admin key. */
export const findPlanId = (flotilla: Flotilla, reference: string): Promise<string> =>
  findId("plan", reference, () => flotilla.listPlans());

/** A query's part for the tenant that was named; nothing when none was. */
export async function queryOfTenant(
  flotilla: Flotilla,
  reference: string | undefined,
): Promise<{ readonly tenantId?: string }> {
  return reference === undefined ? {} : { tenantId: await findTenantId(flotilla, reference) };
}

async function findId(kind: string, reference: string, list: () => Promise<readonly Named[]>): Promise<string> {
  if (new RegExp(`^${kind}-[0-9a-f]{32}$`).test(reference)) return reference;
  const found = (await list()).find(({ id, name }) => id === reference || name === reference);
  if (found !== undefined) return found.id;
  throw new Failure(`there is no ${kind} called "${reference}"`, `\`flotilla ${kind} ls\` lists them`);
}

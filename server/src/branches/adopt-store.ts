/**
 * The statements of an adoption, in which a branch takes the place of its source. All are in one transaction.
 *
 * Always:
 * - The tenant is locked before the machines, and these in the order of their ids, as in every statement that
 *   locks several rows. A create locks the tenant too, so no other machine takes a name meanwhile.
 * - A machine has one host name at each instant: the one of the branch is freed, and stays its tenant's,
 *   before it gets that of its source.
 * - Taken are the name, the host name, the share link, `public` and the list of published ports, which are
 *   rows that only servers read. Host ports of a node are not: its agent chooses them when a machine boots,
 *   and they are shown with each machine. Nor is a url by path or by id, which names the machine itself.
 */
import type { NewEvent } from "@flotilla/contract/event-types";
import { type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import type { MachineName, MachineRecord } from "../machines/record.ts";
import { findAnyMachines } from "../machines/store.ts";
import { eventJson, insertEvents } from "../write-events.ts";
import type { AdoptionFacts, Ties } from "./adoption.ts";

const NO_TIES: Ties = { owner: null, leaseId: null, operation: null };

/** Locks both machines, and reads what decides. undefined: the tenant has no such machine. */
export async function lockForAdoption(
  db: Queryable,
  { tenantId, id }: MachineName,
): Promise<AdoptionFacts | undefined> {
  await db.query(sql`SELECT id FROM tenants WHERE id = ${tenantId} FOR NO KEY UPDATE`);
  const row = await db.queryOne<{ sourceId: string | null }>(sql`
    SELECT origin ->> 'machineId' AS "sourceId" FROM machines
    WHERE id = ${id} AND tenant_id = ${tenantId} AND deleted_at IS NULL`);
  if (row === undefined) return undefined;
  const { sourceId } = row;
  const ids = sourceId === null ? [id] : [id, sourceId];
  await db.query(sql`
    SELECT id FROM machines WHERE id = ANY(${ids}::text[]) AND tenant_id = ${tenantId} ORDER BY id FOR NO KEY UPDATE`);
  const machines = await findAnyMachines(db, ids);
  const branch = machines.find((machine) => machine.id === id);
  if (branch === undefined || branch.deletedAt !== null) return undefined;
  const ties = await tiesOf(db, tenantId, ids);
  return {
    branch,
    branchTies: ties.get(id) ?? NO_TIES,
    source: machines.find((machine) => machine.id === sourceId) ?? null,
    sourceTies: ties.get(sourceId ?? "") ?? NO_TIES,
    adopter: sourceId === null ? null : await adopterOf(db, tenantId, { sourceId, id }),
  };
}

interface TiesRow {
  readonly id: string;
  readonly ownerKind: "app" | "pool" | null;
  readonly ownerId: string | null;
  readonly leaseId: string | null;
  readonly operationId: string | null;
  readonly operationKind: string | null;
}

async function tiesOf(db: Queryable, tenantId: string, ids: readonly string[]): Promise<ReadonlyMap<string, Ties>> {
  const rows = await db.query<TiesRow>(sql`
    SELECT m.id, o.kind AS "ownerKind", o.id AS "ownerId", l.id AS "leaseId", p.id AS "operationId",
      p.kind AS "operationKind"
    FROM unnest(${ids}::text[]) AS m(id)
    LEFT JOIN machine_owners o ON o.machine_id = m.id
    LEFT JOIN LATERAL (
      SELECT id FROM leases WHERE tenant_id = ${tenantId} AND machine_id = m.id AND (ended_at IS NULL OR has_machine)
      LIMIT 1) l ON true
    LEFT JOIN LATERAL (
      SELECT id, kind FROM operations
      WHERE tenant_id = ${tenantId} AND status = 'running' AND resource_kind = 'machine' AND resource_id = m.id
      LIMIT 1) p ON true`);
  return new Map(
    rows.map(({ id, ownerKind, ownerId, leaseId, operationId, operationKind }) => [
      id,
      {
        owner: ownerKind === null || ownerId === null ? null : { kind: ownerKind, id: ownerId },
        leaseId,
        operation: operationId === null || operationKind === null ? null : { id: operationId, kind: operationKind },
      },
    ]),
  );
}

/** Another machine that has taken the place of the source. */
async function adopterOf(
  db: Queryable,
  tenantId: string,
  { sourceId, id }: { readonly sourceId: string; readonly id: string },
): Promise<string | null> {
  const row = await db.queryOne<{ id: string }>(sql`
    SELECT id FROM machines
    WHERE origin IS NOT NULL AND origin ->> 'machineId' = ${sourceId} AND tenant_id = ${tenantId}
      AND origin -> 'adopted' IS NOT NULL AND deleted_at IS NULL AND id <> ${id} LIMIT 1`);
  return row?.id ?? null;
}

export async function isNameTaken(db: Queryable, tenantId: string, name: string): Promise<boolean> {
  const row = await db.queryOne(sql`
    SELECT id FROM machines WHERE tenant_id = ${tenantId} AND name = ${name} AND deleted_at IS NULL`);
  return row !== undefined;
}

interface Handover {
  readonly branch: MachineRecord;
  readonly source: MachineRecord;
  /** Epoch milliseconds. */
  readonly at: number;
}

/** Gives the branch the host name and the share link of its source, and writes the event of both. */
export async function handOverAddress(db: Queryable, { branch, source, at }: Handover): Promise<void> {
  const now = instantOf(at);
  await db.execute(sql`
    UPDATE hosts SET freed_at = ${now}::timestamptz WHERE subject_id = ${branch.id} AND freed_at IS NULL`);
  await db.execute(sql`
    UPDATE hosts SET subject_id = ${branch.id} WHERE subject_id = ${source.id} AND freed_at IS NULL`);
  await db.execute(sql`DELETE FROM machine_shares WHERE machine_id = ${branch.id}`);
  await db.execute(sql`UPDATE machine_shares SET machine_id = ${branch.id} WHERE machine_id = ${source.id}`);
  const event: NewEvent = {
    type: "machine.adopted",
    data: { from: source.id, by: branch.id, name: source.name ?? source.id },
  };
  await db.execute(
    insertEvents(sql`
      SELECT ${branch.tenantId}::text AS tenant_id, m.id AS subject_id, ${eventJson(event)} AS event,
        ${now}::timestamptz AS created_at
      FROM unnest(${[branch.id, source.id]}::text[]) AS m(id)`),
  );
}

/** Renames a source that is kept, whose host name was handed over. */
export async function renameSource(db: Queryable, { source, at }: Handover, name: string): Promise<void> {
  await db.execute(sql`
    UPDATE machines SET name = ${name}, revision = revision + 1, updated_at = ${instantOf(at)} WHERE id = ${source.id}`);
  await db.query(sql`SELECT give_host_name('machine', ${source.id}, ${name}, ${source.tenantId})`);
}

/** Gives the branch what is left: the name, which is free by now, the ports and `public`. */
export async function takePlace(
  db: Queryable,
  { branch, source, at }: Handover,
  adopted: { readonly keptAs: string | null },
): Promise<void> {
  await db.execute(sql`
    UPDATE machines SET name = ${source.name}, ports = ${JSON.stringify(source.ports)}::jsonb,
      is_public = ${source.isPublic}, origin = origin || ${JSON.stringify({ adopted })}::jsonb,
      revision = revision + 1, updated_at = ${instantOf(at)}
    WHERE id = ${branch.id}`);
}

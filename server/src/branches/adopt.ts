/**
 * Lets a branch take the place of its source: its name, url, published ports and share link. The source is
 * deleted, or kept under another name.
 *
 * Always:
 * - It is one transaction: at each instant one of the two machines has the place. Of two branches of one
 *   source that adopt concurrently one does, and the other is refused.
 * - Every server and ingress is notified before the answer, as of every change of a machine. Requests that
 *   begin after it reach the branch; on other servers within milliseconds.
 * - The source runs on, with its open connections, until it is deleted.
 *
 * A crash after the transaction loses the notifications, without which caches are right after half a second
 * (ingress/) to 5 seconds, and the call to the node of a deleted source, which the machine reconciler makes.
 */
import { Refusal } from "@flotilla/contract/errors";
import { machineNotFound } from "../auth/not-found.ts";
import type { Context } from "../context.ts";
import type { Queryable } from "../db/database.ts";
import { generatedName } from "../machines/names.ts";
import type { MachineName, MachineRecord } from "../machines/record.ts";
import { removeFromNode } from "../machines/remove.ts";
import type { MachineServices } from "../machines/services.ts";
import { announce, findAnyMachines, removeMachineIn } from "../machines/store.ts";
import { handOverAddress, isNameTaken, lockForAdoption, renameSource, takePlace } from "./adopt-store.ts";
import { adoptionRefusal, keptName } from "./adoption.ts";

export interface Adopting extends MachineName {
  readonly keepsSource: boolean;
}

export interface Adopted {
  readonly branch: MachineRecord;
  /** null: it was deleted. */
  readonly source: MachineRecord | null;
}

/** As they are now, also when the branch had adopted before. Throws a Refusal that says why it may not. */
export async function adoptSource(services: MachineServices, request: Adopting): Promise<Adopted> {
  const { activity, cache, context } = services;
  const { tenantId, id, keepsSource } = request;
  const known = await cache.read({ tenantId, id });
  // Its row may be gone soon after the delete.
  const counting = keepsSource ? null : activity.written(known?.origin?.machineId ?? "");
  if (counting !== null) await counting;
  const changes: Changed[] = [];
  await cache.keep([id], async () => {
    const changed = await context.db.transaction((db) => change(context, db, request));
    changes.push(changed);
    await Promise.all(changed.written.map((machine) => announce(context, machine)));
    return [changed.branch];
  });
  const [changed] = changes;
  if (changed === undefined) throw machineNotFound(id);
  const { branch, source, written } = changed;
  if (source === null || source.deletedAt === null) return { branch, source };
  if (written.length > 0) removeFromNode(services, source);
  return { branch, source: null };
}

interface Changed {
  readonly branch: MachineRecord;
  /** It may be deleted; null: its row is gone. */
  readonly source: MachineRecord | null;
  /** Which of them this transaction has changed. */
  readonly written: readonly MachineRecord[];
}

async function change(
  { clock, randomBytes }: Context,
  db: Queryable,
  { tenantId, id, keepsSource }: Adopting,
): Promise<Changed> {
  const facts = await lockForAdoption(db, { tenantId, id });
  if (facts === undefined) throw machineNotFound(id);
  const { branch, source } = facts;
  if (branch.origin?.adopted !== undefined) return { branch, source, written: [] };
  const refusal = adoptionRefusal(facts);
  if (refusal !== null || source === null) throw new Refusal("conflict", refusal ?? `machine ${id} has no source`);
  const handover = { branch, source, at: clock.now() };
  await handOverAddress(db, handover);
  const keptAs = keepsSource ? await freeName(db, source, () => generatedName(randomBytes)) : null;
  if (keptAs === null) await removeMachineIn(db, handover.at, { tenantId, id: source.id });
  else await renameSource(db, handover, keptAs);
  await takePlace(db, handover, { keptAs });
  const written = await findAnyMachines(db, [id, source.id]);
  const now = (of: string): MachineRecord | undefined => written.find((machine) => machine.id === of);
  return { branch: now(id) ?? branch, source: now(source.id) ?? null, written };
}

/** A name for a source that is kept. The lock on its tenant keeps it free. */
async function freeName(db: Queryable, source: MachineRecord, generate: () => string): Promise<string> {
  let name = keptName(source);
  while (await isNameTaken(db, source.tenantId, name)) name = generate();
  return name;
}

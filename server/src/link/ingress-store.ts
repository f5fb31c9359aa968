/**
 * Every SQL statement for ingress processes that listen for nodes, and the public part of fleet authorities.
 * An ingress's database role may run all of them except `writeCertificates`.
 *
 * Always: whether an ingress is alive is decided by the database's clock: clocks of hosts may differ.
 */
import { type FleetListener, parkedAddress } from "@flotilla/contract/link/fleet";
import { type Queryable, sql } from "../db/database.ts";

/** Max ingresses that are certified and named to nodes. */
const INGRESSES_MAX = 16;

export interface IngressCertificate {
  /** PEM. */
  readonly certificate: string;
  /** Epoch milliseconds. */
  readonly expiresAt: number;
}

/** The certificates of an ingress, by the fingerprint of the authority that signed each. */
export type IngressCertificates = Readonly<Record<string, IngressCertificate>>;

export interface IngressRow {
  readonly id: string;
  /** PEM. */
  readonly publicKey: string;
  readonly certificates: IngressCertificates;
}

/** Confirms where an ingress listens. With another key it loses its certificates, and servers sign others. */
export async function upsertIngress(
  db: Queryable,
  {
    id,
    addresses,
    publicKey,
  }: { readonly id: string; readonly addresses: readonly string[]; readonly publicKey: string },
): Promise<void> {
  await db.execute(sql`
    INSERT INTO ingress_listeners AS i (id, addresses, public_key, certificates, seen_at)
    VALUES (${id}, ${addresses}::text[], ${publicKey}, '{}', now())
    ON CONFLICT (id) DO UPDATE SET
      certificates = CASE WHEN i.public_key = excluded.public_key THEN i.certificates ELSE '{}' END,
      public_key = excluded.public_key, addresses = excluded.addresses, seen_at = excluded.seen_at`);
}

export async function removeIngress(db: Queryable, id: string): Promise<void> {
  await db.execute(sql`DELETE FROM ingress_listeners WHERE id = ${id}`);
}

/** undefined: the key has no certificates, or the row is missing. */
export async function findIngressCertificates(
  db: Queryable,
  { id, publicKey }: { readonly id: string; readonly publicKey: string },
): Promise<IngressCertificates | undefined> {
  const row = await db.queryOne<Pick<IngressRow, "certificates">>(sql`
    SELECT certificates FROM ingress_listeners WHERE id = ${id} AND public_key = ${publicKey}`);
  return row?.certificates;
}

const isAlive = (lostAfterMs: number) => sql`seen_at >= now() - ${lostAfterMs} * interval '1 ms'`;

/**
 * Where ingresses listen that have certificates and were confirmed within the last `lostAfterMs`
 * milliseconds.
 */
export const listIngressListeners = (db: Queryable, lostAfterMs: number): Promise<readonly FleetListener[]> =>
  db.query<FleetListener>(sql`
    SELECT id, addresses FROM ingress_listeners WHERE ${isAlive(lostAfterMs)} AND certificates <> '{}'
    ORDER BY id LIMIT ${INGRESSES_MAX}`);

/** The ids of nodes that report, and that are reached by connections that they park. */
export async function listParkingNodes(db: Queryable): Promise<readonly string[]> {
  const rows = await db.query<{ readonly id: string }>(sql`
    SELECT id FROM nodes WHERE status IN ('ready', 'draining') AND address LIKE ${`${parkedAddress("")}%`} ORDER BY id`);
  return rows.map(({ id }) => id);
}

/** The keys of ingresses that were confirmed within the last `lostAfterMs` milliseconds. */
export const listIngressKeys = (db: Queryable, lostAfterMs: number): Promise<readonly IngressRow[]> =>
  db.query<IngressRow>(sql`
    SELECT id, public_key AS "publicKey", certificates FROM ingress_listeners WHERE ${isAlive(lostAfterMs)}
    ORDER BY id LIMIT ${INGRESSES_MAX}`);

/** Writes the certificates of an ingress, unless it has another key now. */
export async function writeCertificates(db: Queryable, { id, publicKey, certificates }: IngressRow): Promise<void> {
  await db.execute(sql`
    UPDATE ingress_listeners SET certificates = ${JSON.stringify(certificates)}::jsonb
    WHERE id = ${id} AND public_key = ${publicKey}`);
}

/** Deletes the rows of ingresses that ended long ago. */
export async function removeLostIngresses(db: Queryable, goneAfterMs: number): Promise<void> {
  await db.execute(sql`DELETE FROM ingress_listeners WHERE seen_at < now() - ${goneAfterMs} * interval '1 ms'`);
}

/** The certificates of trusted authorities as PEM, by fingerprint; the one that signs first. */
export async function listAuthorityCertificates(db: Queryable): Promise<ReadonlyMap<string, string>> {
  const rows = await db.query<{ fingerprint: string; certificate: string }>(sql`
    SELECT fingerprint, certificate FROM fleet_authorities ORDER BY retired_at IS NOT NULL, created_at DESC`);
  return new Map(rows.map(({ fingerprint, certificate }) => [fingerprint, certificate]));
}

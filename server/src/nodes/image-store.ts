/**
 * Every statement that writes which node has which image. placement/store.ts reads it.
 *
 * Always: a report is applied once and in order within an incarnation of the agent; references are stored by
 * their canonical name.
 */
import type { ImageReport, NodeImage, ReportedImage } from "@flotilla/contract/link/link";
import { canonicalReference } from "@flotilla/contract/reference";
import { type Queryable, sql } from "../db/database.ts";

interface NodeReport {
  readonly nodeId: string;
  readonly agentBootId: string;
  readonly report: ImageReport;
}

/** Applies a node's report, unless a later one was applied before. */
export async function applyImageReport(db: Queryable, { nodeId, agentBootId, report }: NodeReport): Promise<void> {
  const { sequence, isComplete, held, removed } = report;
  await db.execute(sql`
    WITH applied AS (
      UPDATE nodes SET images_boot_id = ${agentBootId}, images_sequence = ${sequence}::bigint
      WHERE id = ${nodeId} AND (images_boot_id IS DISTINCT FROM ${agentBootId} OR images_sequence < ${sequence}::bigint)
      RETURNING id),
    held AS (
      SELECT DISTINCT h.reference, h.architecture, h.tenant_id
      FROM jsonb_to_recordset(${rowsOf(held)}::jsonb) AS h(reference text, architecture text, tenant_id text)),
    removed AS (
      SELECT r.reference, r.architecture, r.tenant_id
      FROM jsonb_to_recordset(${rowsOf(removed)}::jsonb) AS r(reference text, architecture text, tenant_id text)),
    gone AS (
      DELETE FROM node_images i USING applied a
      WHERE i.node_id = a.id AND CASE WHEN ${isComplete}::boolean
        THEN NOT EXISTS (
          SELECT FROM held h WHERE (h.reference, h.architecture) = (i.reference, i.architecture)
            AND h.tenant_id IS NOT DISTINCT FROM i.tenant_id)
        ELSE EXISTS (
          SELECT FROM removed r WHERE (r.reference, r.architecture) = (i.reference, i.architecture)
            AND r.tenant_id IS NOT DISTINCT FROM i.tenant_id) END)
    INSERT INTO node_images (node_id, reference, architecture, tenant_id)
    SELECT a.id, h.reference, h.architecture, h.tenant_id FROM applied a, held h
    ON CONFLICT DO NOTHING`);
}

const rowsOf = (images: readonly ReportedImage[]): string =>
  JSON.stringify(
    images.map(({ reference, architecture, tenantId }) => ({
      reference: canonicalReference(reference),
      architecture,
      tenant_id: tenantId,
    })),
  );

/** The nodes that have a local image, as they reported. */
export const nodesWithLocalImage = async (db: Queryable, reference: string): Promise<readonly string[]> => {
  const rows = await db.query<{ nodeId: string }>(sql`
    SELECT DISTINCT node_id AS "nodeId" FROM node_images
    WHERE reference = ${canonicalReference(reference)} AND tenant_id IS NULL ORDER BY node_id`);
  return rows.map(({ nodeId }) => nodeId);
};

/** Forgets a local image that a node has just removed, so that no start right after it is placed there. */
export async function forgetLocalImage(db: Queryable, nodeId: string, reference: string): Promise<void> {
  await db.execute(sql`
    DELETE FROM node_images
    WHERE node_id = ${nodeId} AND reference = ${canonicalReference(reference)} AND tenant_id IS NULL`);
}

/**
 * Notes an image that a node has just got through this server, so that a start right after it finds the node.
 */
export async function noteImage(
  db: Queryable,
  nodeId: string,
  image: NodeImage,
  tenantId: string | null,
): Promise<void> {
  await db.execute(sql`
    INSERT INTO node_images (node_id, reference, architecture, tenant_id)
    VALUES (${nodeId}, ${canonicalReference(image.reference)}, ${image.architecture}, ${tenantId})
    ON CONFLICT DO NOTHING`);
}

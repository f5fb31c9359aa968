/**
 * The nodes that have an image which a start does not fetch: one made or imported on a node (`local/…`), or any image of a
 * machine whose network is blocked. Such a machine must be placed where its image is, because its first start binds it.
 *
 * Always: nodes report their images, so no node is called, except one with version 1 of the link, which reports none. If it
 * does not answer within ANSWER_MS_MAX, it counts as without the image.
 */
import type { Services } from "../services.ts";
import { canonicalReference } from "@flotilla/contract/reference";
import type { MachineRecord } from "./record.ts";

const ANSWER_MS_MAX = 1_000;

type ImageQuery = Parameters<Services["nodes"]["withImage"]>[0];

/** The ids of those nodes; null when any node will do, or when none has it: then the start's refusal says why. */
export async function nodesToStartOn(
  services: Pick<Services, "context" | "link" | "nodes">,
  { tenantId, source, network }: Pick<MachineRecord, "tenantId" | "source" | "network">,
): Promise<readonly string[] | null> {
  if (network.mode !== "blocked" && !source.reference.startsWith("local/")) return null;
  const query = { reference: canonicalReference(source.reference), architecture: source.arch ?? null, tenantId };
  const nodes = await services.nodes.withImage(query);
  if (nodes.length < 2) return null;
  const over = new AbortController();
  const late = services.context.clock.sleep(ANSWER_MS_MAX, over.signal).then(() => false);
  const holders = await Promise.all(
    nodes.map(async ({ id, address, hasReported, hasImage }) => {
      const has = hasReported ? hasImage : await Promise.race([ask(services, { nodeId: id, address }, query), late]);
      return has ? [id] : [];
    }),
  );
  over.abort();
  const ids = holders.flat();
  return ids.length === 0 ? null : ids;
}

async function ask(
  { link }: Pick<Services, "link">,
  node: { readonly nodeId: string; readonly address: string },
  query: ImageQuery,
): Promise<boolean> {
  const images = await link.listImages(node, query.tenantId).catch(() => []);
  return images.some(
    ({ reference, architecture }) =>
      canonicalReference(reference) === query.reference && (query.architecture ?? architecture) === architecture,
  );
}

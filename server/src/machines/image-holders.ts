/**
 * Which nodes have an image that is not fetched by a start: one made or imported on a node (`local/…`), or any image of
 * a machine whose network is blocked. Such a machine belongs where its image is, because its first start binds it.
 *
 * Asks the nodes, each for a moment: one that does not answer at once has no say. With a single node nobody is asked.
 */
import type { MachineRecord } from "./record.ts";
import type { Services } from "../services.ts";
import { canonicalReference } from "@flotilla/contract/reference";

const ANSWER_MS_MAX = 1_000;

/** The ids of those nodes; null when it does not matter, or when none has it: then the start's own refusal says why. */
export async function nodesToStartOn(
  { context, link, nodes }: Pick<Services, "context" | "link" | "nodes">,
  { tenantId, source, network }: Pick<MachineRecord, "tenantId" | "source" | "network">,
): Promise<readonly string[] | null> {
  if (network.mode !== "blocked" && !source.reference.startsWith("local/")) return null;
  const ready = await nodes.ready();
  if (ready.length < 2) return null;
  const wanted = canonicalReference(source.reference);
  const over = new AbortController();
  const late = context.clock.sleep(ANSWER_MS_MAX, over.signal).then(() => []);
  const asked = ready.map(async ({ id, address }) => {
    const images = await Promise.race([link.listImages({ nodeId: id, address }, tenantId), late]).catch(() => []);
    const has = images.some(
      ({ reference, architecture }) =>
        canonicalReference(reference) === wanted && (source.arch ?? architecture) === architecture,
    );
    return has ? [id] : [];
  });
  const holders = (await Promise.all(asked)).flat();
  over.abort();
  return holders.length === 0 ? null : holders;
}

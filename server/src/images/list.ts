/**
 * The images of nodes as the API shows them. A list may have thousands, so it is made in pieces of
 * PIECE_IMAGES, each in a turn of its caller (fairness/turns.ts): otherwise other tenants' calls would wait
 * until a whole list is made, or several.
 */
import { mapAtMost } from "@flotilla/base/concurrency";
import type { ImageInfo } from "@flotilla/contract/images";
import type { NodeImage } from "@flotilla/contract/link/link";
import type { NodeLink } from "../link/node-link.ts";
import type { Turns } from "../fairness/turns.ts";
import type { NodeRecord } from "../nodes/store.ts";

/** A piece takes some tenths of a millisecond. */
const PIECE_IMAGES = 200;
/** One list must not keep every node of a large fleet busy at the same time. */
const NODES_AT_A_TIME = 16;

export interface ImagesQuery {
  /** null: those of all tenants. */
  readonly tenantId: string | null;
  /** The caller's tenant. */
  readonly asker: string;
}

/**
 * Lists the images of all nodes that answer. Nodes known to be unreachable are asked only when all are.
 * Throws the error of a node when none answers, and the signal's reason between two nodes.
 */
export async function imagesOfNodes(
  link: NodeLink,
  nodes: readonly NodeRecord[],
  { signal, ...query }: ImagesQuery & { readonly signal: AbortSignal },
): Promise<readonly ImageInfo[]> {
  const reachable = nodes.filter(({ status }) => status !== "revoked" && status !== "unreachable");
  const chosen = reachable.length > 0 ? reachable : nodes.filter(({ status }) => status === "unreachable");
  const answers = await mapAtMost(NODES_AT_A_TIME, chosen, async (node) => {
    signal.throwIfAborted();
    return await imagesOf(link, node, query).catch((error: unknown) => ({ error }));
  });
  const found = answers.flatMap((answer) => ("error" in answer ? [] : [answer]));
  const [first] = answers;
  if (found.length === 0 && first !== undefined && "error" in first) throw first.error;
  return found.flat();
}

/** Throws NodeUnreachable. */
export async function imagesOf(
  link: NodeLink,
  node: Pick<NodeRecord, "id" | "address">,
  { tenantId, asker }: ImagesQuery,
): Promise<readonly ImageInfo[]> {
  const listed = await link.listImages({ nodeId: node.id, address: node.address }, tenantId, asker);
  const images = tenantId === null ? eachOnce(listed) : listed;
  return (await inPieces(link.turns, asker, images, (piece) => piece.map((image) => imageInfo(node.id, image)))).flat();
}

/** A node lists an image for each tenant that has it, and has it once. */
function eachOnce(images: readonly NodeImage[]): readonly NodeImage[] {
  const known = new Map(images.map((image) => [`${image.reference} ${image.digest} ${image.architecture}`, image]));
  return [...known.values()];
}

/** The JSON text of a list. */
export async function textOf(turns: Turns, asker: string, images: readonly ImageInfo[]): Promise<string> {
  const texts = await inPieces(turns, asker, images, (piece) => piece.map((image) => JSON.stringify(image)).join(","));
  return `[${texts.join(",")}]`;
}

async function inPieces<T, U>(
  turns: Turns,
  asker: string,
  all: readonly T[],
  work: (piece: readonly T[]) => U,
): Promise<readonly U[]> {
  const done: U[] = [];
  for (let at = 0; at < all.length; at += PIECE_IMAGES)
    done.push(await turns.run(asker, () => work(all.slice(at, at + PIECE_IMAGES))));
  return done;
}

export const imageInfo = (nodeId: string, image: NodeImage): ImageInfo => ({
  reference: image.reference,
  digest: image.digest,
  size: image.sizeBytes,
  architecture: image.architecture,
  os: image.os,
  layerCount: image.layerCount,
  nodeId,
  lastUsedAt: image.lastUsedAt === null ? null : new Date(image.lastUsedAt).toISOString(),
});

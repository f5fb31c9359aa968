/**
 * The images of nodes as the API shows them. A list may have thousands, so it is made in pieces of PIECE_IMAGES, each in a turn of
 * its caller (link/turns.ts): otherwise other tenants' calls would wait until a whole list is made, or several.
 */
import type { ImageInfo } from "@flotilla/contract/images";
import type { NodeImage } from "@flotilla/contract/link";
import type { NodeLink } from "../link/node-link.ts";
import type { Turns } from "../link/turns.ts";
import type { NodeRecord } from "../nodes/store.ts";

/** A piece takes some tenths of a millisecond. */
const PIECE_IMAGES = 200;

export interface ImagesAsked {
  /** null: those of all tenants. */
  readonly tenantId: string | null;
  /** The caller's tenant. */
  readonly asker: string;
}

/** Throws NodeUnreachable. */
export async function imagesOf(
  link: NodeLink,
  node: Pick<NodeRecord, "id" | "address">,
  { tenantId, asker }: ImagesAsked,
): Promise<readonly ImageInfo[]> {
  const images = await link.listImages({ nodeId: node.id, address: node.address }, tenantId, asker);
  return (await inPieces(link.turns, asker, images, (piece) => piece.map((image) => imageInfo(node.id, image)))).flat();
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

/**
 * `flotilla image ls`: the images that each node has cached.
 *
 * An image that is not in the list is fetched when a machine first needs it.
 */
import { renderSpan } from "@flotilla/base/span";
import type { Call } from "../call.ts";
import { renderBytes } from "../table.ts";

export async function run(call: Call): Promise<void> {
  const images = await call.flotilla().listImages();
  if (call.output.isJson) return call.output.json(images);
  if (images.length === 0) return call.output.note("no images yet; they are fetched when a machine needs them");
  const now = call.world.clock.now();
  call.output.table(
    ["REFERENCE", "SIZE", "ARCH", "LAYERS", "LAST USED", "NODE", "DIGEST"],
    images.map((image) => [
      image.reference,
      renderBytes(image.size),
      image.architecture,
      String(image.layerCount),
      image.lastUsedAt === null ? "never" : `${renderSpan(now - Date.parse(image.lastUsedAt))} ago`,
      image.nodeId,
      image.digest.slice(0, 19),
    ]),
  );
}

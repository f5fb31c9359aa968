/**
 * Finds a machine's image on this node or pulls it, and reports the progress.
 *
 * Always: a machine whose network is blocked pulls nothing: it starts only from images that the node has.
 */
import type { NewEvent } from "@flotilla/contract/event-types";
import type { Clock } from "@flotilla/base/clock";
import type { MachineSpec } from "@flotilla/contract/link/link";
import { ImageRefused } from "../images/image-refused.ts";
import type { Images, UnpackedImage } from "../images/images.ts";

export interface EnsureImageOptions {
  readonly images: Images;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  readonly report: {
    /** Adds an event to the machine's timeline. */
    event(event: NewEvent): void;
    /** Sets the machine's progress. */
    progress(message: string): void;
  };
}

/** Throws an Error for the machine's owner when the image cannot be found or pulled. */
export async function ensureImage(spec: MachineSpec, options: EnsureImageOptions): Promise<UnpackedImage> {
  const { images, clock, report, signal } = options;
  const { tenantId } = spec;
  const { reference, arch, isPackage = false } = spec.image;
  const found = await images.find(reference, arch, tenantId);
  // `ensure` records the use of an image on the node: the least recently used images are removed first.
  if (found !== undefined) return await images.ensure(reference, { arch, tenantId, isPackage, signal });
  if (spec.network.mode === "blocked" && !reference.startsWith("local/")) {
    throw new ImageRefused(
      "image_not_cached",
      `image ${reference} is not cached on this node for this tenant, and a machine whose network is blocked cannot pull it; ` +
        `fetch it first with \`flotilla image pull ${reference}\`, then start the machine again`,
    );
  }
  const startedAt = clock.monotonic();
  report.event({ type: "machine.imagePullBegun", data: { reference } });
  const onProgress = ({ message }: { readonly message: string }): void => report.progress(message);
  const pulled = await images.ensure(reference, { arch, tenantId, isPackage, onProgress, signal });
  const seconds = Math.round((clock.monotonic() - startedAt) / 100) / 10;
  report.event({ type: "machine.imagePulled", data: { reference, seconds } });
  return pulled;
}

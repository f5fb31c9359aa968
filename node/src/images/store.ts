/**
 * The images on this node's disk.
 */
import type { Clock } from "../clock.ts";
import type { Log } from "../log.ts";
import type { Images, UnpackedImage } from "./images.ts";

export interface ImagesOptions {
  /** Owned by this module alone; made if missing, 0700. */
  readonly directory: string;
  /** What set-up made: `images/busybox` in it becomes `local/busybox`. */
  readonly cacheDirectory: string;
  /** The node's own: `amd64` or `arm64`. */
  readonly arch: string;
  readonly mirrors: ReadonlyMap<string, string>;
  readonly insecureRegistries: readonly string[];
  readonly credentialsPath: string | null;
  /** What unpacked images may take before unused ones are removed. */
  readonly cacheBytesMax: number;
  /** Digests that some machine's disk depends on, now. */
  readonly digestsInUse: () => Promise<ReadonlySet<string>>;
  readonly clock: Clock;
  readonly log: Log;
}

/** What the agent itself calls besides `Images`. */
export interface NodeImages extends Images, AsyncDisposable {
  /** Makes `local/busybox` from the busybox of the cache directory; undefined when set-up put none there. */
  ensureLocalBusybox(): Promise<UnpackedImage | undefined>;
}

/** Opens the image directory and sweeps what a crash left in it. */
export async function openImages(options: ImagesOptions): Promise<NodeImages> {
  throw new Error(`images in ${options.directory} cannot be opened`);
}

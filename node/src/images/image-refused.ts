/**
 * An image that cannot be provided, however often it is tried, with an error code for programs.
 *
 * Every other failure of an image is a plain Error: the next attempt may succeed.
 */
import type { ImageFault } from "@flotilla/contract/errors";

export class ImageRefused extends Error {
  readonly code: ImageFault;

  /** `message` is for the machine's owner. */
  constructor(code: ImageFault, message: string) {
    super(message);
    this.name = "ImageRefused";
    this.code = code;
  }
}

/** null: the next attempt may succeed. */
export function imageFaultIn(error: unknown): ImageFault | null {
  return error instanceof ImageRefused ? error.code : null;
}

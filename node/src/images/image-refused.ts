/**
 * An image that can not be had however often it is tried, with the code that says so to programs.
 *
 * Everything else that goes wrong with an image is a plain Error: the next attempt may succeed.
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

/** null: it may be different the next time. */
export function imageFaultIn(error: unknown): ImageFault | null {
  return error instanceof ImageRefused ? error.code : null;
}

/**
 * Which images the node reports: all of them at first and after a failure, then the difference from what the
 * server has accepted.
 *
 * In memory only. Always: a report has at most REPORT_BYTES_MAX of JSON; of more images the most recently
 * used are reported, and a machine of another one is placed without regard to its image.
 */
import type { ImageReport, NodeImage, ReportedImage } from "@flotilla/contract/link/link";

/** A heartbeat has room for 8 MiB, most of it for machines. A usual reference takes 100 bytes. */
const REPORT_BYTES_MAX = 1024 * 1024;

export class ImageReports {
  /** By key; null: the server may have none of them. */
  #accepted: ReadonlyMap<string, ReportedImage> | null = null;
  #sent: ReadonlyMap<string, ReportedImage> = new Map();
  #sequence = 0;

  /** The next report; null when nothing has changed. */
  next(images: readonly NodeImage[], options: { readonly isComplete: boolean }): ImageReport | null {
    const current = reportedOf(images);
    this.#sent = current;
    const before = options.isComplete || this.#accepted === null ? null : this.#accepted;
    const held = without(current, before ?? new Map<string, ReportedImage>());
    const removed = before === null ? [] : without(before, current);
    if (before !== null && held.length + removed.length === 0) return null;
    this.#sequence += 1;
    return { sequence: this.#sequence, isComplete: before === null, held, removed };
  }

  /** The server has the images of the newest report. */
  accepted(): void {
    this.#accepted = this.#sent;
  }
}

function reportedOf(images: readonly NodeImage[]): ReadonlyMap<string, ReportedImage> {
  const kept = new Map<string, ReportedImage>();
  let bytes = 0;
  for (const image of images.toSorted((a, b) => (b.lastUsedAt ?? 0) - (a.lastUsedAt ?? 0))) {
    const { reference, architecture, tenantId } = image;
    const reported = { reference, architecture, tenantId };
    const key = JSON.stringify(reported);
    bytes += Buffer.byteLength(key) + 1;
    if (bytes > REPORT_BYTES_MAX) break;
    kept.set(key, reported);
  }
  return kept;
}

const without = (
  all: ReadonlyMap<string, ReportedImage>,
  others: ReadonlyMap<string, ReportedImage>,
): readonly ReportedImage[] => [...all].filter(([key]) => !others.has(key)).map(([, image]) => image);

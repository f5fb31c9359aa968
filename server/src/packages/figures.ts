/**
 * What exports of machines take: counts of those that this server has completed, as metrics.
 */
import type { Measure } from "../family.ts";

export class ExportFigures {
  #exports = 0;
  #bytes = 0;
  #sentBytes = 0;
  #ms = 0;

  exported({
    sizeBytes,
    sentBytes,
    ms,
  }: {
    readonly sizeBytes: number;
    readonly sentBytes: number;
    readonly ms: number;
  }): void {
    this.#exports += 1;
    this.#bytes += sizeBytes;
    this.#sentBytes += sentBytes;
    this.#ms += ms;
  }

  measures(): readonly Measure[] {
    const counter = (name: string, help: string, read: () => number): Measure => ({
      ...{ kind: "counter", name, help, labels: [], read: () => [[{}, read()]] },
    });
    return [
      counter("flotilla_exports_total", "disks of machines that were exported", () => this.#exports),
      counter("flotilla_export_seconds_total", "how long their exports took", () => this.#ms / 1000),
      counter("flotilla_export_bytes_total", "the size of their layers", () => this.#bytes),
      counter("flotilla_export_sent_bytes_total", "what of that was sent", () => this.#sentBytes),
    ];
  }
}

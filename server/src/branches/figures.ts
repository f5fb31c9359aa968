/**
 * What branches of machines take: counts and times of those that this server has made, as metrics. They begin
 * at 0 with each server, as all counters.
 */
import type { Queryable } from "../db/database.ts";
import type { Measure } from "../family.ts";
import { pointTotals } from "./store.ts";

export class BranchFigures {
  #pauses = 0;
  #pausedMs = 0;
  #clones = 0;
  #startMs = 0;

  /** A source was paused. */
  paused(ms: number): void {
    this.#pauses += 1;
    this.#pausedMs += ms;
  }

  /** Clones run, each of them after this time. */
  started(clones: number, ms: number): void {
    this.#clones += clones;
    this.#startMs += clones * ms;
  }

  measures(db: Queryable): readonly Measure[] {
    const counter = (name: string, help: string, read: () => number): Measure => ({
      ...{ kind: "counter", name, help, labels: [], read: () => [[{}, read()]] },
    });
    return [
      {
        kind: "gauge",
        name: "flotilla_branch_points",
        help: "instants of machines that nodes keep, for checkpoints and for branches that are being made",
        labels: [],
        read: async () => [[{}, (await pointTotals(db)).count]],
      },
      {
        kind: "gauge",
        name: "flotilla_branch_point_bytes",
        help: "what the disks and memories of these instants take",
        labels: [],
        read: async () => [[{}, (await pointTotals(db)).bytes]],
      },
      counter("flotilla_branch_pauses_total", "pauses of machines that were branched", () => this.#pauses),
      counter("flotilla_branch_paused_seconds_total", "how long they were paused", () => this.#pausedMs / 1000),
      counter("flotilla_branch_clones_total", "machines that branches have started", () => this.#clones),
      counter("flotilla_branch_start_seconds_total", "how long their starts took", () => this.#startMs / 1000),
    ];
  }
}

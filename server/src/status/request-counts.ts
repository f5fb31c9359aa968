/**
 * Counts answered requests and their durations, and prints them in Prometheus' format. Pure.
 *
 * Our own code, although all other metrics use the library: the library turns the labels into a string and
 * looks that up for each observation, twice per request, which was a twentieth of a read's time outside the
 * kernel.
 *
 * Always: `_bucket` is cumulative, as Prometheus expects.
 */

/** One answered request: the endpoint's name, or `none` for an unknown path. */
export interface RequestSeen {
  readonly name: string;
  readonly status: number | string;
  readonly seconds: number;
}

/** The metrics' names without their endings, and the labels of a request's name and status. */
export interface Counted {
  readonly prefix: string;
  readonly what: string;
  readonly nameLabel: string;
  readonly statusLabel: string;
}

const ENDPOINTS: Counted = {
  prefix: "flotilla_http",
  what: "Answered requests by endpoint and status",
  nameLabel: "endpoint",
  statusLabel: "status",
};

const BUCKETS_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

interface Tally {
  readonly byStatus: Map<number | string, number>;
  /** Number of requests between each bound and the next; the last one: above all bounds. */
  readonly within: number[];
  seconds: number;
}

export class RequestCounts {
  readonly #counted: Counted;
  readonly #tallies = new Map<string, Tally>();

  constructor(counted = ENDPOINTS) {
    this.#counted = counted;
  }

  /** How many names are counted. */
  get size(): number {
    return this.#tallies.size;
  }

  /** Drops the counts of names that are not selected. */
  keep(isSelected: (name: string) => boolean): void {
    for (const name of this.#tallies.keys()) if (!isSelected(name)) this.#tallies.delete(name);
  }

  observe({ name, status, seconds }: RequestSeen): void {
    let tally = this.#tallies.get(name);
    if (tally === undefined) {
      tally = { byStatus: new Map(), within: [...BUCKETS_SECONDS, 0].map(() => 0), seconds: 0 };
      this.#tallies.set(name, tally);
    }
    tally.byStatus.set(status, (tally.byStatus.get(status) ?? 0) + 1);
    let at = 0;
    while (seconds > (BUCKETS_SECONDS[at] ?? Number.POSITIVE_INFINITY)) at += 1;
    tally.within[at] = (tally.within[at] ?? 0) + 1;
    tally.seconds += seconds;
  }

  /** Ends with a line break. Names and statuses need no escaping. */
  text(): string {
    const { prefix, what, nameLabel, statusLabel } = this.#counted;
    const [total, time] = [`${prefix}_requests_total`, `${prefix}_request_seconds`];
    const counts = [`# HELP ${total} ${what}`, `# TYPE ${total} counter`];
    const times = [`# HELP ${time} Time from the head of a request to the end of its answer`];
    times.push(`# TYPE ${time} histogram`);
    for (const [name, { byStatus, within, seconds }] of this.#tallies) {
      for (const [status, count] of byStatus)
        counts.push(`${total}{${nameLabel}="${name}",${statusLabel}="${status}"} ${count}`);
      let sum = 0;
      for (const [at, count] of within.entries()) {
        sum += count;
        const bound = BUCKETS_SECONDS[at] ?? "+Inf";
        times.push(`${time}_bucket{le="${bound}",${nameLabel}="${name}"} ${sum}`);
      }
      times.push(`${time}_sum{${nameLabel}="${name}"} ${seconds}`);
      times.push(`${time}_count{${nameLabel}="${name}"} ${sum}`);
    }
    return `${counts.join("\n")}\n\n${times.join("\n")}\n`;
  }
}

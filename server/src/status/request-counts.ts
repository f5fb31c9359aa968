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
  readonly status: number;
  readonly seconds: number;
}

const BUCKETS_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

interface Tally {
  readonly byStatus: Map<number, number>;
  /** Number of requests between each bound and the next; the last one: above all bounds. */
  readonly within: number[];
  seconds: number;
}

export class RequestCounts {
  readonly #tallies = new Map<string, Tally>();

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

  /** Ends with a line break. Names of endpoints need no escaping. */
  text(): string {
    const counts = ["# HELP flotilla_http_requests_total Answered requests by endpoint and status"];
    counts.push("# TYPE flotilla_http_requests_total counter");
    const times = ["# HELP flotilla_http_request_seconds Time from the head of a request to the end of its answer"];
    times.push("# TYPE flotilla_http_request_seconds histogram");
    for (const [name, { byStatus, within, seconds }] of this.#tallies) {
      for (const [status, count] of byStatus)
        counts.push(`flotilla_http_requests_total{endpoint="${name}",status="${status}"} ${count}`);
      let sum = 0;
      for (const [at, count] of within.entries()) {
        sum += count;
        const bound = BUCKETS_SECONDS[at] ?? "+Inf";
        times.push(`flotilla_http_request_seconds_bucket{le="${bound}",endpoint="${name}"} ${sum}`);
      }
      times.push(`flotilla_http_request_seconds_sum{endpoint="${name}"} ${seconds}`);
      times.push(`flotilla_http_request_seconds_count{endpoint="${name}"} ${sum}`);
    }
    return `${counts.join("\n")}\n\n${times.join("\n")}\n`;
  }
}

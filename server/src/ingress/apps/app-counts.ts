/**
 * Metrics of apps: requests by the class of their status, their time, how many are open, and how many were
 * sent to another instance. In Prometheus' format, by the id of the app.
 *
 * Always: only apps in the table of targets are printed. Others are dropped when the metrics are read, and
 * when twice as many apps are counted as after the last time, so that apps that end do not fill the memory.
 */
import { RequestCounts } from "../../status/request-counts.ts";

/** Up to this number of apps, those that ended are kept until the metrics are read. */
const SWEEP_APPS = 1_000;

export class AppCounts {
  readonly #isServed: (appId: string) => boolean;
  #sweepAt = SWEEP_APPS;
  readonly #requests = new RequestCounts({
    prefix: "flotilla_app",
    what: "Answered requests of apps by class of status",
    nameLabel: "app",
    statusLabel: "class",
  });
  readonly #retried = new Map<string, number>();

  /** `isServed`: whether the app is in the table of targets. */
  constructor(isServed: (appId: string) => boolean) {
    this.#isServed = isServed;
  }

  /** A status that the caller did not wait for is of class 4xx. */
  observe(appId: string, status: number, seconds: number): void {
    this.#requests.observe({ name: appId, status: `${Math.floor(status / 100)}xx`, seconds });
    if (this.#requests.size > this.#sweepAt) this.#sweep();
  }

  /** A request was sent to another instance. */
  retried(appId: string): void {
    this.#retried.set(appId, (this.#retried.get(appId) ?? 0) + 1);
  }

  /** Ends with a line break. */
  text(open: ReadonlyMap<string, number>): string {
    this.#sweep();
    const lines = [
      "# HELP flotilla_app_open_requests Requests of apps that are open",
      "# TYPE flotilla_app_open_requests gauge",
      ...[...open].map(([id, count]) => `flotilla_app_open_requests{app="${id}"} ${count}`),
      "# HELP flotilla_app_retried_requests_total Requests that were sent to another instance",
      "# TYPE flotilla_app_retried_requests_total counter",
      ...[...this.#retried].map(([id, count]) => `flotilla_app_retried_requests_total{app="${id}"} ${count}`),
    ];
    return `${this.#requests.text()}\n${lines.join("\n")}\n`;
  }

  #sweep(): void {
    this.#requests.keep(this.#isServed);
    for (const id of this.#retried.keys()) if (!this.#isServed(id)) this.#retried.delete(id);
    this.#sweepAt = Math.max(SWEEP_APPS, 2 * this.#requests.size);
  }
}

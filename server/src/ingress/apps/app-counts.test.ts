/**
 * Metrics of apps, as Prometheus reads them.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { AppCounts } from "./app-counts.ts";

test("requests of apps are counted by class, with what is open and what was sent again", () => {
  const counts = new AppCounts(() => true);
  for (const status of [200, 204, 404, 499, 503, 101]) counts.observe("app-1", status, 0.002);
  counts.observe("app-2", 200, 31);
  counts.retried("app-1");
  counts.retried("app-1");
  const lines = new Set(counts.text(new Map([["app-1", 3]])).split("\n"));
  for (const line of [
    'flotilla_app_requests_total{app="app-1",class="1xx"} 1',
    'flotilla_app_requests_total{app="app-1",class="2xx"} 2',
    'flotilla_app_requests_total{app="app-1",class="4xx"} 2',
    'flotilla_app_requests_total{app="app-1",class="5xx"} 1',
    'flotilla_app_request_seconds_bucket{le="0.0025",app="app-1"} 6',
    'flotilla_app_request_seconds_count{app="app-2"} 1',
    'flotilla_app_open_requests{app="app-1"} 3',
    'flotilla_app_retried_requests_total{app="app-1"} 2',
  ])
    assert.ok(lines.has(line), line);
});

test("an app that ended is dropped, also while nothing reads the metrics", () => {
  const served = new Set(["app-1"]);
  const asked: string[] = [];
  const counts = new AppCounts((id) => {
    asked.push(id);
    return served.has(id);
  });
  counts.observe("app-1", 200, 1);
  counts.retried("app-1");
  assert.match(counts.text(new Map()), /requests_total\{app="app-1"/);
  served.clear();
  assert.doesNotMatch(counts.text(new Map()), /app-1/);
  served.add("app-1");
  assert.doesNotMatch(counts.text(new Map()), /app-1/, "and stays so");
  asked.length = 0;
  for (let app = 2; app < 5_000; app += 1) counts.observe(`app-${app}`, 200, 1);
  assert.ok(asked.length > 3_000 && asked.length < 20_000, `${asked.length} looks at apps`);
});

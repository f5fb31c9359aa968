/**
 * Request counts, as Prometheus reads them.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { RequestCounts } from "./request-counts.ts";

test("requests are counted by endpoint and status, and each bucket includes the smaller ones", () => {
  const counts = new RequestCounts();
  counts.observe({ name: "getMachine", status: 200, seconds: 0.001 });
  counts.observe({ name: "getMachine", status: 200, seconds: 0.002 });
  counts.observe({ name: "getMachine", status: 404, seconds: 31 });
  counts.observe({ name: "none", status: 404, seconds: 0.25 });
  const lines = new Set(counts.text().split("\n"));
  for (const line of [
    'flotilla_http_requests_total{endpoint="getMachine",status="200"} 2',
    'flotilla_http_requests_total{endpoint="getMachine",status="404"} 1',
    'flotilla_http_requests_total{endpoint="none",status="404"} 1',
    'flotilla_http_request_seconds_bucket{le="0.001",endpoint="getMachine"} 1',
    'flotilla_http_request_seconds_bucket{le="0.0025",endpoint="getMachine"} 2',
    'flotilla_http_request_seconds_bucket{le="30",endpoint="getMachine"} 2',
    'flotilla_http_request_seconds_bucket{le="+Inf",endpoint="getMachine"} 3',
    'flotilla_http_request_seconds_count{endpoint="getMachine"} 3',
    'flotilla_http_request_seconds_sum{endpoint="getMachine"} 31.003',
    'flotilla_http_request_seconds_bucket{le="0.1",endpoint="none"} 0',
    'flotilla_http_request_seconds_bucket{le="0.25",endpoint="none"} 1',
  ])
    assert.ok(lines.has(line), line);
});

/**
 * An app as a terminal shows it, row by row.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { AppInfo, InstanceInfo } from "@flotilla/sdk";
import { appLines, progressLine, shortId } from "./view.ts";

const instance = (id: string, more: Partial<InstanceInfo>): InstanceInfo => ({
  ...{ id, nodeId: "node-1", status: "healthy", generation: 1, hostPort: null, machineId: `mach-${id}` },
  ...{ isServing: true, openRequests: 0, reason: null },
  ...more,
});

test("a rollout is shown with its instances, newest release first, and with what it waits for", () => {
  const app: AppInfo = {
    ...{ id: "app-1", name: "web", image: "i", replicas: 2, status: "deploying", port: 80, domain: null },
    ...{ createdAt: "2026-01-01T00:00:00Z", updatedAt: "2026-01-01T00:00:00Z", url: "http://web.localhost/" },
    ...{ release: 1, createdBy: "key-1", message: null },
    rollout: {
      ...{ operationId: "op-1", to: 2, phase: "checking", strategy: "rolling", from: 1 },
      ...{ message: "release 2 replaces release 1", waitingFor: "the health of 1 instance" },
      ...{ startedAt: "2026-01-01T00:00:00Z", deadline: "2026-01-01T00:03:00Z" },
    },
    instances: [
      instance("inst-b", { status: "draining", isServing: false, openRequests: 3, reason: "another replaces it" }),
      instance("inst-c", { generation: 2, nodeId: "", status: "starting", isServing: false }),
      instance("inst-a", {}),
    ],
  };
  assert.deepEqual(appLines(app, Date.parse("2026-01-01T00:00:10Z")), [
    "web: deploying, 1 of 2 serving; release 2 replaces release 1 (rolling), for 10 s",
    "waits: the health of 1 instance (rolled back in 2 min)",
    "RELEASE  INSTANCE  NODE    HEALTH    TRAFFIC",
    "2        inst-c    -       starting  no",
    "1        inst-a    node-1  healthy   yes",
    "1        inst-b    node-1  draining  3 open   another replaces it",
  ]);
  assert.equal(progressLine(app), "web: 1 of 2 serving; the health of 1 instance");
  assert.equal(shortId("inst-0123456789abcdef0123456789abcdef"), "inst-01234567");
});

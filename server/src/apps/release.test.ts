/**
 * Releases: what a request is made into, what is refused, and in what two differ.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { DeployRequest } from "@flotilla/contract/apps";
import { Refusal } from "@flotilla/contract/errors";
import { checkDomain, checkName, courseOf, differences, type Inputs, secretsOf, specOf, surgeOf } from "./release.ts";

const REQUEST: DeployRequest = { name: "web", image: "nginx" };
const inputs = (fields: Partial<DeployRequest> = {}, digest = "sha256:1"): Inputs => {
  const request = { ...REQUEST, ...fields };
  return { image: request.image, digest, spec: specOf(request), secretEnv: secretsOf(request) };
};

const refused = (work: () => unknown, field: string): void => {
  assert.throws(work, (error) => error instanceof Refusal && error.details.field === field, field);
};

test("a request without fields has the defaults", () => {
  const { spec } = inputs();
  const size = { cpus: 1, memoryMb: 512, port: 8080 };
  assert.deepEqual(spec, { ...size, env: {}, hasNetwork: true, graceMs: 10_000, health: null });
  assert.deepEqual(courseOf(REQUEST), {
    strategy: { type: "rolling", batchSize: 1, waitMs: 0 },
    usesHealthCheck: true,
    placingMs: 60_000,
    checkingMs: 180_000,
  });
});

test("a check has the defaults of its type", () => {
  const times = { intervalMs: 10_000, timeoutMs: 5_000, retries: 3 };
  const healthOf = (health: NonNullable<DeployRequest["health"]>) => specOf({ ...REQUEST, port: 80, health }).health;
  assert.deepEqual(healthOf({ type: "http" }), { type: "http", path: "/", port: 80, command: null, ...times });
  assert.deepEqual(healthOf({ type: "tcp", port: 81 }), { type: "tcp", path: null, port: 81, command: null, ...times });
  const command = ["true"];
  assert.deepEqual(healthOf({ type: "exec", command }), { type: "exec", path: null, port: null, command, ...times });
});

test("a strategy has its defaults, and pauses only without the health check", () => {
  const strategyOf = (strategy: NonNullable<DeployRequest["strategy"]>) => courseOf({ strategy });
  const rolling = strategyOf({ type: "rolling", useHealthCheck: false });
  assert.deepEqual(rolling.strategy, { type: "rolling", batchSize: 1, waitMs: 5_000 });
  assert.equal(rolling.usesHealthCheck, false);
  const waiting = strategyOf({ type: "rolling", waitSeconds: 9, batchSize: 2 }).strategy;
  assert.deepEqual(waiting, { type: "rolling", batchSize: 2, waitMs: 0 });
  const canary = strategyOf({ type: "canary" }).strategy;
  assert.deepEqual(canary, { type: "canary", canaryCount: 1, autoPromote: true });
  assert.deepEqual([surgeOf(waiting, 5), surgeOf(canary, 5), surgeOf({ type: "blueGreen" }, 5)], [2, 1, 5]);
});

test("a name is a host label, and not an id", () => {
  for (const name of ["a", "web-1", "0", "x".repeat(63)]) assert.equal(checkName(name), name);
  for (const name of ["", "Web", "-a", "a-", "a.b", "a_b", "x".repeat(64), `mach-${"0".repeat(32)}`])
    refused(() => checkName(name), "name");
});

test("the port is the one that is asked for, else the image's, else 8080, and so is that of a check", () => {
  const portsOf = (fields: Partial<DeployRequest>, exposed: number | null): readonly unknown[] => {
    const { port, health } = specOf({ ...REQUEST, health: { type: "tcp" }, ...fields }, exposed);
    return [port, health?.port];
  };
  assert.deepEqual(portsOf({}, null), [8080, 8080]);
  assert.deepEqual(portsOf({}, 80), [80, 80]);
  assert.deepEqual(portsOf({ port: 3000 }, 80), [3000, 3000]);
  assert.deepEqual(portsOf({ health: { type: "tcp", port: 9 } }, 80), [80, 9]);
});

test("a domain is a host name that is not the fleet's own", () => {
  const fleet = { isNamed: true, isOwnHost: (host: string): boolean => host.endsWith(".fleet.example") };
  assert.equal(checkDomain("Shop.Example.COM.", fleet), "shop.example.com");
  for (const domain of [
    "shop",
    "a..b",
    "1.2.3.4",
    "a b.example",
    "*.example.com",
    "a.fleet.example",
    `${"a.".repeat(130)}b`,
  ])
    refused(() => checkDomain(domain, fleet), "domain");
  const unnamed = { ...fleet, isNamed: false };
  refused(() => checkDomain("shop.example.com", unnamed), "domain");
});

test("what an environment and a check cannot be is refused with its field", () => {
  const twice = [
    { key: "A", value: "1" },
    { key: "A", value: "2" },
  ];
  refused(() => specOf({ ...REQUEST, env: twice }), "env");
  refused(() => secretsOf({ ...REQUEST, secretEnv: twice }), "secretEnv");
  refused(() => secretsOf({ ...REQUEST, env: twice.slice(1), secretEnv: twice.slice(1) }), "secretEnv");
  refused(() => specOf({ ...REQUEST, health: { type: "exec" } }), "health.command");
  refused(() => specOf({ ...REQUEST, health: { type: "tcp", command: ["true"] } }), "health.command");
  refused(() => specOf({ ...REQUEST, health: { type: "tcp", path: "/" } }), "health.path");
  for (const path of ["x", "/a b", "/a\r\nb"])
    refused(() => specOf({ ...REQUEST, health: { type: "http", path } }), "health.path");
});

test("each input makes a difference, and the order of variables does not", () => {
  const health = { type: "http" } as const;
  const changes: readonly Partial<DeployRequest>[] = [
    { cpus: 2 },
    { memoryMb: 1024 },
    { port: 80 },
    { network: false },
    { stopGraceSecs: 1 },
    { health },
    { env: [{ key: "A", value: "1" }] },
    { secretEnv: [{ key: "B", value: "s3cret" }] },
  ];
  for (const change of changes) {
    const [difference, ...others] = differences(inputs(), inputs(change));
    assert.equal(others.length, 0, JSON.stringify(change));
    assert.ok(difference !== undefined && !difference.includes("s3cret"), JSON.stringify(change));
    assert.equal(differences(inputs(change), inputs()).length, 1);
    assert.deepEqual(differences(inputs(change), structuredClone(inputs(change))), []);
  }
  assert.match(differences(inputs(), inputs({}, "sha256:2"))[0] ?? "", /sha256:1.*sha256:2/);
  const [a, b] = [
    { key: "A", value: "1" },
    { key: "B", value: "2" },
  ];
  assert.deepEqual(differences(inputs({ env: [a, b] }), inputs({ env: [b, a] })), []);
  const stored = inputs({ health });
  const reordered = { ...stored, spec: { ...stored.spec, health: { ...{ retries: 3 }, ...stored.spec.health } } };
  assert.deepEqual(differences(stored, reordered as Inputs), [], "a stored document has another order");
  assert.deepEqual(differences(inputs(), inputs({ replicas: 9, strategy: { type: "blueGreen" } })), []);
});

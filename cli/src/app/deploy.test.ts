/**
 * What options and a file make of a deploy.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Failure } from "../failure.ts";
import { deployRequest } from "./deploy.ts";

const given = { network: true, secrets: {} };

test("only what was given is sent, and options win over the file", () => {
  assert.deepEqual(deployRequest({}, ["web", "local/busybox"], given), { name: "web", image: "local/busybox" });
  const file = { name: "web", image: "local/busybox", port: 80, volume: { name: "v", mountPath: "/v" } };
  assert.deepEqual(
    deployRequest(file, ["other"], { ...given, port: 8080, private: true, network: false, beside: "db" }),
    {
      ...file,
      ...{ name: "other", port: 8080, publicIngress: false, network: false, coLocateWith: "db" },
    },
  );
});

test("variables of the command line replace those of the file with the same name", () => {
  const file = { env: [{ key: "A", value: "1" }, { key: "B", value: "2" }, null, "no variable"] };
  const { env, secretEnv } = deployRequest(file, ["web", "i"], { ...given, env: { B: "3" }, secrets: { S: "x" } });
  assert.deepEqual(env, [{ key: "A", value: "1" }, null, "no variable", { key: "B", value: "3" }]);
  assert.deepEqual(secretEnv, [{ key: "S", value: "x" }]);
});

test("an option of a strategy chooses it, and fits no other", () => {
  const strategy = (options: Partial<Parameters<typeof deployRequest>[2]>) =>
    deployRequest({}, ["web", "i"], { ...given, ...options }).strategy;
  assert.equal(strategy({}), undefined);
  assert.deepEqual(strategy({ batch: 2 }), { type: "rolling", batchSize: 2 });
  assert.deepEqual(strategy({ canaries: 2, waitForPromote: true }), {
    ...{ type: "canary", canaryCount: 2, autoPromote: false },
  });
  assert.deepEqual(strategy({ strategy: "blueGreen" }), { type: "blueGreen" });
  for (const [options, text] of [
    [{ strategy: "blueGreen", batch: 2 }, /--batch belongs to --strategy rolling/],
    [{ batch: 1, canaries: 1 }, /--canaries belongs to --strategy canary/],
  ] as const)
    assert.throws(
      () => strategy(options),
      (error) => error instanceof Failure && text.test(error.message),
    );
});

test("an app needs a name and an image", () => {
  assert.throws(() => deployRequest({}, [], given), /no name/);
  assert.throws(() => deployRequest({ image: "i" }, [], given), /no name/);
  assert.throws(() => deployRequest({}, ["web"], given), /no image/);
});

/**
 * The commands of packages against a real server, and a played node that says that it has exported.
 */
import assert from "node:assert/strict";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { createMachine } from "../../server/test/support/machine-server.ts";
import { TEST_JOIN_TOKEN } from "../../server/test/support/node.ts";
import { digestOf, playNode, putPackage } from "../../server/test/support/packages.ts";
import { imageOf, pushImage, randomLayer, startRegistryServer } from "../../server/test/support/oci.ts";
import { runCli, temporaryHome } from "./run-cli.ts";

const server = await startRegistryServer({ joinToken: TEST_JOIN_TOKEN });
const { client, context } = server;
await playNode(server);
const { registryNamespace } = (await client.get("/v1/me")).json;
const environment = { FLOTILLA_URL: server.url, FLOTILLA_API_KEY: server.adminKey.key };

async function said(t: TestContext, ...argv: string[]): Promise<string> {
  const { code, output, errors } = await runCli(t, argv, { environment });
  assert.equal(code, 0, errors);
  return output.toString();
}

async function refused(t: TestContext, ...argv: string[]): Promise<string> {
  const { code, errors } = await runCli(t, argv, { environment });
  assert.notEqual(code, 0);
  return errors;
}

test("a stopped machine is exported, listed, and made again; tags are kept and deleted", async (t) => {
  assert.match((await runCli(t, ["package", "ls"], { environment })).errors, /no packages yet/);
  const id = await createMachine(client, { name: "web" });
  assert.match(await refused(t, "machine", "export", "web"), /was never started/);
  await client.post(`/v1/machines/${id}/start`);
  assert.match(await refused(t, "machine", "export", "web"), /not stopped/);
  await client.post(`/v1/machines/${id}/stop`);
  assert.equal(await said(t, "machine", "export", "web", "--tag", "1"), `${registryNamespace}/web:1\n`);
  const operation = JSON.parse(await said(t, "machine", "export", "web", "--as", "team/site", "--env", "--json"));
  assert.equal(operation.status, "succeeded");
  assert.match(await said(t, "machine", "export", "web", "--detach"), /^op-[0-9a-f]{32}\n$/);
  const listed = await said(t, "package", "ls");
  assert.match(listed, /^team\/site +latest +1\.0 MB +3 GB +amd64 +docker\.io\/library\/alpine:latest/m);
  assert.match(listed, /^web +/m);
  assert.equal(await said(t, "machine", "create", "web:1", "--package", "--name", "copy"), "copy\n");
  assert.match(await refused(t, "machine", "create", "web:9", "--package"), /package web:9 was not found/);
  assert.match(await refused(t, "machine", "create", "web:9", "--package"), /flotilla package ls/);
  assert.equal(await said(t, "package", "keep", "web", "--last", "3"), "web\n");
  assert.match(await said(t, "package", "keep"), /^web +the newest 3$/m);
  await said(t, "package", "keep", "web", "--all");
  assert.match(await refused(t, "package", "keep", "web"), /either --last/);
  assert.equal(await said(t, "package", "rm", "web:1"), "web:1\n");
  assert.match(await refused(t, "package", "rm", "web:1"), /was not found/);
});

test("a package is pulled into a directory as an image layout, and pushed from it; what is there is not sent again", async (t) => {
  const image = imageOf([randomLayer(3_000_000), randomLayer(10)], {
    artifactType: "application/vnd.flotilla.machine.v1",
    annotations: { "dev.flotilla.disk-bytes": String(5 * 2 ** 30), "dev.flotilla.architecture": "amd64" },
  });
  await pushImage(client, `${registryNamespace}/packed`, image, "1");
  const directory = join(temporaryHome(t), "layout");
  assert.equal(await said(t, "machine", "pull", "packed:1", directory), `${image.digest}\n`);
  const blobs = join(directory, "blobs", "sha256");
  const names = await readdir(blobs);
  assert.equal(names.length, 4);
  for (const name of names)
    assert.equal(digestOf(await readFile(join(blobs, name)).then((bytes) => bytes.toString("latin1"))).length, 71);
  assert.equal(await said(t, "machine", "push", directory, "again:2"), `${registryNamespace}/again:2\n`);
  const inspected = await said(t, "machine", "inspect", "again:2");
  assert.match(inspected, new RegExp(`^digest +${image.digest}$`, "m"));
  assert.match(inspected, /^disk +5 GB$/m);
  assert.match(await said(t, "package", "ls"), /^again +2 +/m);
  assert.match(await refused(t, "machine", "pull", "packed:9", directory), /MANIFEST_UNKNOWN/);
  const [first = ""] = names;
  await writeFile(join(blobs, first), "other content");
  assert.match(await refused(t, "machine", "push", directory, "spoiled"), /(DIGEST_INVALID|other content|UNKNOWN)/);
  await said(t, "machine", "pull", "packed:1", directory);
  await said(t, "machine", "push", directory, "repaired");
});

test("names that are none are refused without a call to the registry", async (t) => {
  await putPackage(context.db, { repository: `${registryNamespace}/odd`, tag: "latest", content: "odd" });
  for (const reference of ["Upper", "../x", "a b", "web:", `odd@${digestOf("x")}x y`])
    assert.match(await refused(t, "machine", "inspect", reference), /is not the reference of a package/);
  assert.match(await refused(t, "machine", "push", "/nonexistent", "web"), /is not an OCI image layout/);
});

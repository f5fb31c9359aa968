/**
 * An assistant's tools for packages, against a real server and a played node that says that it has exported.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { createMachine } from "../../server/test/support/machine-server.ts";
import { TEST_JOIN_TOKEN } from "../../server/test/support/node.ts";
import { playNode } from "../../server/test/support/packages.ts";
import { startRegistryServer } from "../../server/test/support/oci.ts";
import { connectMcp } from "./mcp-client.ts";

const server = await startRegistryServer({ joinToken: TEST_JOIN_TOKEN });
const { client } = server;
await playNode(server);
const environment = { FLOTILLA_URL: server.url, FLOTILLA_API_KEY: server.adminKey.key };

test("a stopped machine is packaged, listed, made again and its package deleted, which is asked for", async (t) => {
  const mcp = await connectMcp(t, "newer", { environment });
  const id = await createMachine(client, { name: "web" });
  const early = await mcp.call("package_machine", { machine: "web" });
  assert.deepEqual([early.isError, /was never started/.test(early.said)], [true, true], early.said);
  await client.post(`/v1/machines/${id}/start`);
  await client.post(`/v1/machines/${id}/stop`);
  const made = await mcp.call("package_machine", { machine: "web", tag: "1" });
  assert.equal(made.isError, false, made.said);
  assert.match((JSON.parse(made.said) as { reference: string }).reference, /\/web:1$/);
  const listed = JSON.parse((await mcp.call("list_packages")).said) as { reference: string; tags: string[] }[];
  const [found] = listed.filter(({ tags }) => tags.includes("1"));
  const again = { image: found?.reference ?? "", package: true, name: "copy", start: false };
  const copy = await mcp.call("create_machine", again);
  assert.equal(copy.isError, false, copy.said);
  const operations = (await client.get("/v1/operations")).json as { id: string; kind: string }[];
  const exported = operations.find(({ kind }) => kind === "machine export");
  const operation = await mcp.call("get_operation", { operation: exported?.id ?? "" });
  assert.match(operation.said, /"status": "succeeded"/);
  mcp.agrees = null;
  assert.equal((await mcp.call("delete_package", { reference: "web:1" })).isError, true);
  mcp.agrees = true;
  assert.equal((await mcp.call("delete_package", { reference: "web:1" })).isError, false);
  assert.deepEqual(mcp.questions, ['Delete the package "web:1"?', 'Delete the package "web:1"?']);
  assert.equal((await mcp.call("list_packages")).said, "[]");
});

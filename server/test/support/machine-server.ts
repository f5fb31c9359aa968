/**
 * A server with one node of the fake driver, and a function that creates machines there: what most test files
 * of machines begin with.
 *
 * Call it at the top of a file. Server and node end after the tests of the file.
 */
import assert from "node:assert/strict";
import type { Client } from "./client.ts";
import { startTestNode, TEST_JOIN_TOKEN, type TestNode } from "./node.ts";
import { startTestServer, type TestServer, type TestServerOptions } from "./server.ts";

export const SOURCE = { type: "image", reference: "local/busybox" };

export interface MachineServer {
  readonly server: TestServer;
  readonly node: TestNode;
  readonly client: Client;
  readonly context: TestServer["context"];
  /** Creates a machine of the default tenant, stopped, and returns its id. */
  readonly machine: (fields?: object) => Promise<string>;
}

/** Starts server and node; resolves when the node has reported. */
export async function startMachineServer(options: TestServerOptions = {}): Promise<MachineServer> {
  const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN, ...options });
  const node = await startTestNode(server);
  const { client, context } = server;
  return { server, node, client, context, machine: (fields) => createMachine(client, fields) };
}

/** Creates a machine of `local/busybox` unless the fields name another image, and returns its id. */
export async function createMachine(client: Client, fields: object = {}): Promise<string> {
  const created = await client.post("/v1/machines", { source: SOURCE, ...fields });
  assert.equal(created.status, 201, created.text);
  return created.json.id;
}

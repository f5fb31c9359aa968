/**
 * What callers that misbehave leave behind in a server and in an ingress process: memory and descriptors.
 *
 * Every endpoint of the contract is called on each listener by a client that is slow, one that sends too
 * much, one that never ends, and one that disappears. Every endpoint whose body or answer lasts is held open,
 * not read, and abandoned. The list comes from the contract: an endpoint that lasts and has no entry in HOLDS
 * fails the test.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Endpoint } from "@flotilla/contract/endpoint";
import { type EndpointName, endpointList } from "@flotilla/contract/endpoints";
import { fastClock } from "../../test/support/fast-clock.ts";
import { leavesNothing, MIB } from "../../test/support/leaves-nothing.ts";
import { callRudely, CHUNK, PIECE, type RudeRequest } from "../../test/support/rude-callers.ts";
import { until } from "../../test/support/until.ts";
import { head, type Wire, wire } from "../../test/support/wire.ts";
import { ALL_BODY_BYTES_MAX } from "../src/fairness/bounds.ts";
import { httpGuest, machineWithPorts } from "./support/guest.ts";
import { startTestIngress } from "./support/ingress.ts";
import { createMachine } from "./support/machine-server.ts";
import { startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { samplePath } from "./support/sample.ts";
import { startTestServer } from "./support/server.ts";

/** Callers of those endpoints that are held open. */
const CALLERS_EACH = 3;
const UPLOAD_BYTES = 2 * MIB;
const DEADLINE_MS = 60_000;
/** Minutes pass in less than a second. */
const SPEED = 300;

test("no endpoint lets a slow, huge, endless or vanished body keep a connection or memory, on any listener", async () => {
  const clock = fastClock(SPEED);
  const nodeListen = { host: "127.0.0.1", port: 0 };
  const server = await startTestServer({ clock, joinToken: TEST_JOIN_TOKEN, nodeListen });
  const ingress = await startTestIngress(server, { clock });
  const machineId = await createMachine(server.client);
  const registered = await server.client
    .withKey(TEST_JOIN_TOKEN)
    .post("/v1/nodes/register", { id: "node-a", address: "unix:/none" });
  const keyOf = ({ access }: Endpoint): string =>
    access === "joinToken"
      ? TEST_JOIN_TOKEN
      : access === "nodeCredential"
        ? registered.json.credential
        : server.adminKey.key;
  const [socketUrl = "", tlsUrl = ""] = server.nodeUrls;

  const requestsTo = (listener: string, url: string): RudeRequest[] => [
    ...endpointList.map(([name, endpoint]) => ({
      what: `${name} of ${listener}`,
      url,
      method: endpoint.method,
      path: samplePath(endpoint.path, endpoint.path.startsWith("/v1/machines/") ? machineId : "node-a"),
      key: keyOf(endpoint),
    })),
    ...["GET", "POST"].map((method) => ({
      what: `${method} of a machine's address of ${listener}`,
      url,
      method,
      path: `/proxy/${machineId}/page`,
      key: server.adminKey.key,
    })),
  ];
  const isForNodes = ({ access }: Endpoint): boolean => access === "joinToken" || access === "nodeCredential";
  const all = [
    ...requestsTo("the API", server.url),
    ...requestsTo("the ingress", ingress.url),
    ...requestsTo("the socket for nodes", socketUrl),
    // It admits few connections without a certificate at a time.
    ...requestsTo("the listener for nodes", tlsUrl).filter((_, index) => {
      const endpoint = endpointList[index]?.[1];
      return endpoint !== undefined && isForNodes(endpoint);
    }),
  ];
  const warmUp = all.filter((_, index) => index % 5 === 0);
  await leavesNothing({ all, warmUp, pids: [], peakBytesMax: ALL_BODY_BYTES_MAX }, callRudely);
});

interface Hold {
  /** The path after `/v1/machines/{id}`, or all of it. */
  readonly path: string;
  readonly json?: object;
  readonly headers?: Readonly<Record<string, string>>;
  /** Its body is sent until the server reads no more. */
  readonly isUpload?: boolean;
}

const UPGRADE = {
  connection: "Upgrade",
  upgrade: "websocket",
  "sec-websocket-version": "13",
  "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
};
const upload = (path: string): Hold => ({ path, headers: { "transfer-encoding": "chunked" }, isUpload: true });
const bridge: Hold = { path: "/connect/80/endless" };
const OUTPUT = { command: "yes" };

/** How each endpoint that lasts is held open. null: its answer is short. */
const HOLDS: Partial<Record<EndpointName, Hold | null>> = {
  getMetrics: null,
  listMachineLogs: { path: "/logs?follow=true" },
  listAppLogs: { path: "/v1/apps/held/logs?follow=true" },
  listEvents: { path: "/v1/events?follow=true" },
  exec: { path: "/exec", json: { ...OUTPUT, stream: true } },
  execStream: { path: "/exec/stream", json: OUTPUT },
  execInSession: { path: "/sessions/{session}/exec", json: { ...OUTPUT, stream: true } },
  // Readers of kept terminals, also slow ones, are in kept-terminals.test.ts.
  watchTerminal: null,
  openTerminal: { path: "/exec/interactive?cmd=yes", headers: UPGRADE },
  readFile: { path: "/files?path=/workspace/large" },
  readFileAt: { path: "/files/workspace/large" },
  writeFile: upload("/files?path=/workspace/up"),
  putFileAt: upload("/files/workspace/up"),
  postFileAt: upload("/files/workspace/up"),
  connectGet: bridge,
  connectHead: null,
  connectOptions: bridge,
  connectDelete: bridge,
  connectPost: upload(bridge.path),
  connectPut: upload(bridge.path),
  connectPatch: upload(bridge.path),
  importImage: upload("/v1/images/import?reference=local/none"),
};
/** The same for a machine's address, where a guest decides what lasts. `{id}` is the machine. */
const HOLDS_BY_ADDRESS: readonly (Hold & { readonly method: string })[] = [
  { method: "GET", path: "/proxy/{id}/endless" },
  { method: "POST", ...upload("/proxy/{id}/endless") },
  { method: "GET", path: "/proxy/{id}/echo", headers: UPGRADE, isUpload: true },
];

function lasts({ answers, body, isUpgrade }: Endpoint): boolean {
  const streams = Object.values(answers).some(
    (answer) => answer.kind === "stream" || ("orStream" in answer && answer.orStream !== undefined),
  );
  return streams || body?.kind === "bytes" || isUpgrade === true;
}

interface HeldRequest extends Hold {
  readonly what: string;
  readonly url: string;
  readonly method: string;
}

/** What lasts, on each listener that serves it. */
function heldRequests(url: string, what: string, serves: (name: EndpointName) => boolean): HeldRequest[] {
  const held = endpointList.flatMap(([name, { method }]) => {
    const how = serves(name) ? HOLDS[name] : null;
    return how === null || how === undefined ? [] : [{ ...how, what: `${name} of ${what}`, url, method }];
  });
  const byAddress = HOLDS_BY_ADDRESS.map((how) => ({ ...how, what: `${how.method} ${how.path} of ${what}`, url }));
  return [...held, ...byAddress];
}

test("no connection that is held open, not read or abandoned keeps memory or descriptors of server, ingress or node", async () => {
  const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
  const node = await startTestNode(server);
  const ingress = await startTestIngress(server);
  const guest = await httpGuest((_, response) => {
    const more = (): void => {
      while (!response.destroyed && response.write(PIECE));
    };
    response.on("drain", more);
    more();
  });
  const { client, adminKey } = server;
  const id = await machineWithPorts(client, { 80: guest.port });
  const app = await client.post("/v1/apps", { name: "held", image: "local/busybox", replicas: 0 });
  assert.equal(app.status, 200, app.text);
  const large = new Uint8Array(24 * MIB);
  await client.post(`/v1/machines/${id}/files?path=/workspace/large`, undefined, { raw: large });
  const sessions: string[] = [];
  const hold = async ({ url, method, path, json, headers = {} }: HeldRequest): Promise<Wire> => {
    // A session runs one command at a time.
    if (path.includes("{session}")) sessions.push((await client.post(`/v1/machines/${id}/sessions`)).json.id);
    const filled = path.replace("{session}", sessions.at(-1) ?? "").replace("{id}", id);
    const one = await wire(url);
    one.socket.pause();
    const body = json === undefined ? "" : JSON.stringify(json);
    const length: Record<string, string> = json === undefined ? {} : { "content-length": String(body.length) };
    const whole = /^\/(v1|proxy)\//.test(filled) ? filled : `/v1/machines/${id}${filled}`;
    one.send(head(method, whole, adminKey.key, { ...headers, ...length }) + body);
    return one;
  };
  const lasting = endpointList.filter(([, endpoint]) => lasts(endpoint)).map(([name]) => name);
  assert.deepEqual(lasting.toSorted(), Object.keys(HOLDS).toSorted(), "HOLDS has each that lasts");
  const held = [
    ...heldRequests(server.url, "the API", () => true),
    ...heldRequests(ingress.url, "the ingress", (name) => name.startsWith("connect")),
  ];

  const rounds = { all: held, warmUp: held, pids: [node.pid()], peakBytesMax: ALL_BODY_BYTES_MAX };
  await leavesNothing(rounds, async (requests, look) => {
    const open: { readonly request: HeldRequest; readonly one: Wire; sentBytes: number }[] = [];
    for (const request of requests)
      for (let count = 0; count < CALLERS_EACH; count += 1)
        open.push({ request, one: await hold(request), sentBytes: 0 });
    // Each has received the beginning of its answer, or sent much of its body.
    const isHeld = ({ request, one, sentBytes }: (typeof open)[number]): boolean =>
      request.isUpload === true
        ? sentBytes > UPLOAD_BYTES || one.socket.writableNeedDrain
        : one.socket.readableLength > 0 || one.isClosed();
    const areHeld = (): boolean => {
      for (const each of open) {
        const { request, one } = each;
        if (request.isUpload !== true || one.socket.destroyed || isHeld(each)) continue;
        one.send(CHUNK);
        each.sentBytes += CHUNK.byteLength;
      }
      look();
      return open.every(isHeld);
    };
    await until(areHeld, { what: "all to be held", deadlineMs: DEADLINE_MS, everyMs: 25 }).catch((error: unknown) => {
      const missing = open.filter((each) => !isHeld(each)).map(({ request }) => request.what);
      throw new Error(`not held: ${missing.join(", ")}`, { cause: error });
    });
    for (const { request, one } of open) {
      one.socket.read();
      const answer = one.received();
      if (request.isUpload !== true || answer !== "") assert.match(answer, /^HTTP\/1\.1 (101|200) /, request.what);
      one.socket.destroy();
    }
    for (const session of sessions.splice(0)) await client.delete(`/v1/machines/${id}/sessions/${session}`);
  });
  assert.equal((await client.post(`/v1/machines/${id}/exec`, { command: "echo alive" })).json.stdout, "alive\n");
  const page = await fetch(`${ingress.url}/proxy/${id}/`, { headers: { authorization: `Bearer ${adminKey.key}` } });
  assert.equal(page.status, 200);
  await page.body?.cancel();
});

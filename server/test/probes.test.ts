/**
 * How the connections of callers and of nodes are probed while they are silent: what this program asks of the
 * system for each, since the system's answer takes half a minute.
 */
import assert from "node:assert/strict";
import { connect, Socket } from "node:net";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { HEARTBEAT_LOST_MS } from "@flotilla/contract/link/link";
import { openTls } from "../../node/src/link/fleet-tls.ts";
import { until } from "../../test/support/until.ts";
import { startTestServer } from "./support/server.ts";

const probing = new WeakMap<Socket, readonly unknown[]>();
const probed: Socket[] = [];
const setKeepAlive = Socket.prototype.setKeepAlive as (this: Socket, ...how: unknown[]) => Socket;
Socket.prototype.setKeepAlive = function (this: Socket, ...how: unknown[]) {
  probing.set(this, how);
  probed.push(this);
  return setKeepAlive.apply(this, how);
};

const server = await startTestServer({ nodeListen: { host: "127.0.0.1", port: 0 } });
const fleet = new URL(server.nodeUrls.find((each) => each.startsWith("https:")) ?? "");

/**
 * Until the system ends a connection after the first probe without an answer; what Node does by itself: a
 * second, ten times.
 */
function patienceOf(socket: Socket): number {
  const [isOn, , periodMs = 1_000, count = 10] = probing.get(socket) as [boolean, number, number?, number?];
  return isOn ? (count - 1) * periodMs : Number.NaN;
}

for (const [whose, at] of [
  ["a caller's connection", new URL(server.url)],
  ["a node's connection, at the server,", fleet],
] as const)
  test(`${whose} outlasts an interruption of the network in which no node is lost`, async (t) => {
    const socket = connect(Number(at.port), at.hostname);
    t.after(() => socket.destroy());
    const isOurs = ({ remotePort }: Socket): boolean => remotePort !== undefined && remotePort === socket.localPort;
    const other = await until(() => probed.find(isOurs), { what: "the connection to be probed", deadlineMs: 5_000 });
    assert.ok(patienceOf(other) >= HEARTBEAT_LOST_MS);
  });

test("a node's connection, at the node, outlasts an interruption of the network in which no node is lost", async () => {
  const at = { host: fleet.hostname, port: Number(fleet.port) };
  const socket = await openTls({ ...at, rejectUnauthorized: false }, systemClock);
  assert.ok(patienceOf(socket) >= HEARTBEAT_LOST_MS);
  socket.destroy();
});

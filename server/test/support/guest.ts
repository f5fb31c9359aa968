/**
 * Listeners of a fake machine: servers of the test on loopback, and machines whose ports lead to them.
 */
import { once } from "node:events";
import { createServer as createHttpServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { after } from "node:test";
import type { Client } from "./client.ts";
import { until } from "../../../test/support/until.ts";

/** An HTTP server; returns its port on loopback. Upgrades end in an echo. */
export async function httpGuest(
  answer: (request: IncomingMessage, response: ServerResponse) => void,
): Promise<{ readonly port: number; readonly server: Server }> {
  const server = createHttpServer(answer);
  server.on("upgrade", (request, socket, head) => {
    const { upgrade = "", "sec-websocket-protocol": protocol } = request.headers;
    const line = protocol === undefined ? "" : `sec-websocket-protocol: ${protocol}\r\n`;
    socket.write(`HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: ${upgrade}\r\n${line}\r\n`);
    socket.on("error", () => socket.destroy());
    if (head.byteLength > 0) socket.write(head);
    socket.pipe(socket);
  });
  return { server, port: await listenOnLoopback(server) };
}

/** A server that handles each connection itself. */
export async function rawGuest(serve: (socket: Socket) => void): Promise<{ port: number; sockets: Socket[] }> {
  const sockets: Socket[] = [];
  const server = createServer((socket) => {
    sockets.push(socket);
    socket.on("error", () => socket.destroy());
    serve(socket);
    socket.resume();
  });
  after(() => {
    for (const socket of sockets) socket.destroy();
  });
  return { port: await listenOnLoopback(server), sockets };
}

async function listenOnLoopback(server: Server | ReturnType<typeof createServer>): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  after(() => {
    server.close();
    if ("closeAllConnections" in server) server.closeAllConnections();
  });
  return (server.address() as AddressInfo).port;
}

/**
 * Creates and starts a machine that publishes the ports, each of which leads to one on loopback, and waits
 * until it is ready. Returns its id.
 */
export async function machineWithPorts(
  client: Client,
  ports: Readonly<Record<number, number>>,
  more: object = {},
): Promise<string> {
  const pairs = Object.entries(ports).map(([port, hostPort]) => `${port}=${hostPort}`);
  const created = await client.post("/v1/machines", {
    source: { type: "image", reference: "local/busybox" },
    ports: Object.keys(ports).map((port) => ({ port: Number(port) })),
    env: { FAKE_PORTS: pairs.join(",") },
    ...more,
  });
  const id = String(created.json?.id);
  const started = await client.post(`/v1/machines/${id}/start`);
  if (started.status !== 200) throw new Error(`the machine did not start: ${created.text} ${started.text}`);
  // Afterwards its node no longer probes the ports: later connections are the test's.
  const isReady = async (): Promise<boolean> => (await client.get(`/v1/machines/${id}`)).json.ready === true;
  await until(isReady, { what: `machine ${id} to be ready`, deadlineMs: 20_000 });
  return id;
}

/**
 * The listener for nodes on other hosts, of a server or an ingress: TLS 1.3 with certificates of the fleet's
 * authorities.
 *
 * A connection is parked for calls of this process (parked.ts) or carries HTTP of the node to a server: its
 * registration, without a certificate, and its heartbeats. It announces its addresses in the database, from
 * where nodes learn them.
 *
 * Always:
 * - A connection is parked only with a valid certificate whose key the node has now (fleet-connections.ts).
 * - The number of connections is bounded, also for each node. handshakes.ts bounds those that are not of a
 *   node: registrations, and handshakes, which take at most HANDSHAKE_MS.
 * - A connection without a certificate serves one request, a registration, and ends after ANONYMOUS_MS.
 */
import { createHash } from "node:crypto";
import { createServer, type AddressInfo, type Server } from "node:net";
import { networkInterfaces } from "node:os";
import { createServer as createTlsServer, type TLSSocket } from "node:tls";
import { every } from "@flotilla/base/clock";
import { Handshakes } from "@flotilla/base/handshakes";
import { probeWhenSilent } from "@flotilla/base/probes";
import { PARKED_PROTOCOL } from "@flotilla/contract/link/fleet";
import type { ListenAddress } from "@flotilla/contract/setting-values";
import type { NodeCertificate } from "../auth/caller.ts";
import type { Context } from "../context.ts";
import type { FleetConnections } from "./fleet-connections.ts";
import { removeListener, upsertListener } from "./fleet-store.ts";
import type { ParkedConnections } from "./parked.ts";
import { certificateOf, type HandshakeTrust, LISTENER_LOST_MS, type TlsIdentity } from "./trust.ts";

const CONNECTIONS_MAX = 8_192;
const CONNECTIONS_PER_NODE_MAX = 2_048;
/** Two round trips, also from far away and with a busy host. */
const HANDSHAKE_MS = 5_000;
/** A connection without a certificate is for one registration; its node waits no longer for the answer. */
const ANONYMOUS_MS = 10_000;
const ANNOUNCE_MS = 10_000;
/** Addresses in 240.0.0.0/4, which a host has only for its own machines. */
const OF_MACHINES = /^2[45]\d\./;

export interface FleetListenerOptions {
  readonly context: Context;
  readonly listen: ListenAddress;
  /** `host:port`, under which nodes reach it; null: as it listens. */
  readonly addresses: readonly string[] | null;
  readonly trust: HandshakeTrust;
  /** What is shown to clients that name no authority; null: nothing. */
  readonly identity: TlsIdentity | null;
  readonly announcer: Announcer;
  readonly parked: ParkedConnections;
  readonly connections: FleetConnections;
  /** Serves HTTP on a connection. `certificate`: of the node; null: it has shown none. */
  readonly serveHttp: (socket: TLSSocket, certificate: NodeCertificate | null) => void;
}

/** Where it is announced in the database. */
export interface Announcer {
  /** Called at the start and every ANNOUNCE_MS. When the first call rejects, the start fails. */
  confirm(id: string, addresses: readonly string[]): Promise<void>;
  withdraw(id: string): Promise<void>;
}

export interface FleetListener {
  readonly address: ListenAddress;
  /** Accepts no more connections; open ones stay. */
  close(): Promise<void>;
}

/** Announces the listener of a server. */
export function serverAnnouncer(db: Context["db"]): Announcer {
  let known: string | null = null;
  return {
    async confirm(id, addresses) {
      await upsertListener(db, { id, addresses, goneAfterMs: 10 * LISTENER_LOST_MS });
      const confirmed = addresses.join(" ");
      if (known !== confirmed) await db.notify("fleet", id);
      known = confirmed;
    },
    async withdraw(id) {
      await removeListener(db, id);
      await db.notify("fleet", id);
    },
  };
}

/** Throws an Error when it cannot listen, or when it cannot be announced. */
export async function startFleetListener(options: FleetListenerOptions): Promise<FleetListener> {
  const { context, listen, trust, identity } = options;
  const handshakes = new Handshakes();
  const tls = createTlsServer({
    ...(identity === null ? {} : { key: identity.key, cert: identity.cert, ca: [...identity.ca] }),
    minVersion: "TLSv1.3",
    requestCert: true,
    // Without a certificate a node may register.
    rejectUnauthorized: false,
    ALPNProtocols: [PARKED_PROTOCOL, "http/1.1"],
    handshakeTimeout: HANDSHAKE_MS,
    SNICallback: (name, done) => {
      // oxlint-disable promise/no-callback-in-promise -- node:tls takes no promise
      trust.shownTo(name).then(
        (shown) => done(null, shown),
        (error: Error) => done(error),
      );
      // oxlint-enable promise/no-callback-in-promise
    },
  });
  tls.on("tlsClientError", (error, socket) => {
    context.log.debug({ error, from: socket.remoteAddress }, "a connection of a node failed in its handshake");
    socket.destroy();
  });
  tls.on("secureConnection", (socket) => {
    socket.on("error", () => socket.destroy());
    void receive(options, socket, () => handshakes.end(socket)).catch((error: unknown) => {
      context.log.debug({ error }, "a connection of a node could not be accepted");
      socket.destroy();
    });
  });
  const server = createServer({ noDelay: true }, (socket) => {
    probeWhenSilent(socket);
    handshakes.begin(socket);
    tls.emit("connection", socket);
  });
  server.maxConnections = CONNECTIONS_MAX;
  await startListening(server, listen);
  const { port } = server.address() as AddressInfo;
  const address = { host: listen.host, port };
  const silence = await announce(options, () => options.addresses ?? reachableAt(address)).catch((error: unknown) => {
    server.close();
    throw error;
  });
  return {
    address,
    async close() {
      await silence();
      // Open connections keep it from closing; they end with the calls on them.
      server.close();
    },
  };
}

/** `onAdmitted`: the connection is one of a node, and does not count as a handshake any more. */
async function receive(options: FleetListenerOptions, socket: TLSSocket, onAdmitted: () => void): Promise<void> {
  const { context, parked, connections, serveHttp } = options;
  const certificate = certificateOf(socket);
  const isParked = socket.alpnProtocol === PARKED_PROTOCOL;
  if (certificate === null) {
    if (isParked) return void socket.destroy();
    const late = context.clock.timer(ANONYMOUS_MS, () => socket.destroy());
    socket.once("close", () => late.cancel());
    return serveHttp(socket, null);
  }
  const { nodeId, keyHash } = certificate;
  if (connections.countOf(nodeId) >= CONNECTIONS_PER_NODE_MAX) return void socket.destroy();
  const isAdmitted = await connections.isAdmitted(nodeId, keyHash);
  if (socket.destroyed) return;
  if (isAdmitted) {
    connections.watch(nodeId, keyHash, socket);
    onAdmitted();
  }
  // HTTP is authenticated with each request: a node that is not admitted may register, or reads why it is
  // refused.
  if (!isParked) serveHttp(socket, certificate);
  else if (isAdmitted) parked.park(nodeId, socket);
  else socket.destroy();
}

function startListening(server: Server, listen: ListenAddress): Promise<void> {
  return new Promise((resolve, reject) => {
    const fail = (error: Error): void =>
      reject(
        new Error(
          `cannot listen for nodes on ${listen.host}:${listen.port}: ${error.message}; change FLOTILLA_NODE_LISTEN`,
        ),
      );
    server.once("error", fail);
    server.listen(listen, () => {
      server.off("error", fail);
      resolve();
    });
  });
}

/** Announces the addresses, which may change with the host's, until the returned function is called. */
async function announce(
  { context: { clock, log }, announcer }: FleetListenerOptions,
  addressesNow: () => readonly string[],
): Promise<() => Promise<void>> {
  const addresses = addressesNow();
  const id = createHash("sha256").update(addresses.join(" ")).digest("hex").slice(0, 16);
  await announcer.confirm(id, addresses);
  const stop = every(clock, ANNOUNCE_MS, () => {
    announcer
      .confirm(id, addressesNow())
      .catch((error: unknown) => log.warn({ error }, "the listener for nodes could not be announced"));
  });
  return async () => {
    stop();
    await announcer.withdraw(id).catch(() => undefined);
  };
}

/** Where other hosts reach a listener: its address, or each of the host's when it listens on all of them. */
function reachableAt({ host, port }: ListenAddress): readonly string[] {
  const textOf = (address: string): string => `${address.includes(":") ? `[${address}]` : address}:${port}`;
  if (host !== "0.0.0.0" && host !== "::") return [textOf(host)];
  const all = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  const found = all.filter(({ internal, family, scopeid, address }) => {
    const isUsable = !internal && (scopeid === undefined || scopeid === 0) && !OF_MACHINES.test(address);
    return isUsable && (family === "IPv4" || host === "::");
  });
  return found.length === 0 ? [textOf("127.0.0.1")] : found.map(({ address }) => textOf(address));
}

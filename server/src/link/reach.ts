/**
 * How this server gets a connection to a node, by the node's address: over a Unix socket of its host, over
 * one that the node has parked here, or directly.
 *
 *     unix:/path             a socket of this host
 *     parked:<node id>       one that the node has opened (parked.ts)
 *     https://host:port      TLS 1.3 with certificates on both sides; the node's must be its own
 *     http://host:port       without protection, for tests: no node can register it
 */
import { isIP } from "node:net";
import { connect as connectTls, type TLSSocket } from "node:tls";
import type { Clock } from "@flotilla/base/clock";
import { probeWhenSilent } from "@flotilla/base/probes";
import { boundReadAhead, connectUnix } from "@flotilla/base/large-reads";
import { nodeIdentity } from "@flotilla/contract/link/fleet";
import { type buildConnector, Pool } from "undici";
import type { FleetConnections } from "./fleet-connections.ts";
import type { ParkedConnections } from "./parked.ts";
import { asUnopened } from "./refusals.ts";
import { certificateOf, type FleetTrust, type HandshakeTrust } from "./trust.ts";

/** What is needed to reach nodes on other hosts. */
export interface FleetReach {
  readonly trust: HandshakeTrust;
  readonly parked: ParkedConnections;
  readonly connections: FleetConnections;
  readonly clock: Clock;
}

/** The same of a server. */
export interface Fleet extends FleetReach {
  readonly trust: FleetTrust;
}

const CONNECT_MS = 10_000;

/** Makes the pool of connections to a node. `fleet` null: this program reaches only nodes of its host. */
export function openPool(
  node: { readonly nodeId: string; readonly address: string },
  fleet: FleetReach | null,
  options: Pool.Options,
): Pool {
  const { nodeId, address } = node;
  if (address.startsWith("unix:")) {
    const path = address.slice("unix:".length);
    return new Pool("http://node", { ...options, connect: (_options, callback) => connectHere(path, callback) });
  }
  if (address.startsWith("http:")) return new Pool(address, options);
  const open = async (): Promise<TLSSocket> => {
    if (fleet === null) throw new Error("this program does not reach nodes on other hosts; call a server");
    if (address.startsWith("parked:")) return (await fleet.parked.take(nodeId)) as TLSSocket;
    return await connectDirectly(fleet, nodeId, new URL(address));
  };
  return new Pool("http://node", {
    ...options,
    connect: (_options, callback) => {
      // oxlint-disable promise/no-callback-in-promise -- undici takes no promise
      open().then(
        (socket) => {
          boundReadAhead(socket);
          callback(null, socket);
        },
        (error: Error) => callback(asUnopened(error), null),
      );
      // oxlint-enable promise/no-callback-in-promise
    },
  });
}

/** A Unix socket accepts or refuses at once. */
function connectHere(path: string, callback: buildConnector.Callback): void {
  const socket = connectUnix(path);
  const failed = (error: Error): void => callback(error, null);
  socket.once("error", failed);
  socket.once("connect", () => {
    socket.off("error", failed);
    callback(null, socket);
  });
}

async function connectDirectly(
  { trust, connections, clock }: FleetReach,
  nodeId: string,
  { hostname, port }: URL,
): Promise<TLSSocket> {
  const { key, cert, ca } = await trust.identity();
  const socket = await new Promise<TLSSocket>((resolve, reject) => {
    const opened = connectTls({
      host: hostname.replace(/^\[|\]$/g, ""),
      port: Number(port),
      key,
      cert,
      ca: [...ca],
      minVersion: "TLSv1.3",
      ...(isIP(hostname) === 0 && !hostname.startsWith("[") ? { servername: hostname } : {}),
      checkServerIdentity: (_host, { subjectaltname }) =>
        subjectaltname === nodeIdentity(nodeId)
          ? undefined
          : new Error(`the certificate at the address of node ${nodeId} is not its own`),
    });
    probeWhenSilent(opened.setNoDelay(true));
    const late = clock.timer(CONNECT_MS, () => opened.destroy(new Error("no answer in time")));
    opened.once("close", () => reject(new Error("the connection was closed in its handshake")));
    opened.once("error", reject);
    opened.once("secureConnect", () => {
      opened.off("error", reject);
      late.cancel();
      resolve(opened);
    });
  });
  socket.on("error", () => socket.destroy());
  const certificate = certificateOf(socket);
  if (certificate === null || !(await connections.isAdmitted(nodeId, certificate.keyHash))) {
    socket.destroy();
    throw new Error(`the credential of node ${nodeId} was revoked`);
  }
  connections.watch(nodeId, certificate.keyHash, socket);
  return socket;
}

/**
 * Where servers connect to a node that is reachable: TLS 1.3 with certificates of the fleet on both sides.
 *
 * Always: only a server of the fleet is served, and an ingress, which may only open ports of machines; a
 * handshake that takes HANDSHAKE_MS is ended, and those that others hold keep no server out (handshakes.ts).
 */
import { createServer, type Socket } from "node:net";
import { createSecureContext, createServer as createTlsServer, type SecureContextOptions } from "node:tls";
import type { Log } from "@flotilla/base/log";
import { Handshakes } from "@flotilla/base/handshakes";
import { probeWhenSilent } from "@flotilla/base/probes";
import { INGRESS_IDENTITY, SERVER_IDENTITY } from "@flotilla/contract/link/fleet";
import type { ListenAddress } from "@flotilla/contract/setting-values";
import type { Membership } from "./membership.ts";
import type { Peer } from "./parking.ts";

const HANDSHAKE_MS = 10_000;

export interface LinkListenerOptions {
  readonly listen: ListenAddress;
  readonly membership: Membership;
  /** Serves HTTP on a connection with `peer`. */
  readonly serve: (socket: Socket, peer: Peer) => void;
  readonly log: Log;
}

/** Starts to listen. Throws an Error when it cannot. */
export async function listenForServers(options: LinkListenerOptions): Promise<{ close(): void }> {
  const { listen, membership, serve, log } = options;
  const handshakes = new Handshakes();
  const tls = createTlsServer({
    ...contextOf(membership),
    requestCert: true,
    rejectUnauthorized: true,
    handshakeTimeout: HANDSHAKE_MS,
    // Also without a name that the client asks for: the current certificate.
    SNICallback: (_name, done) => done(null, createSecureContext(contextOf(membership))),
  });
  membership.watch(() => tls.setSecureContext(contextOf(membership)));
  tls.on("tlsClientError", (error, socket) => {
    log.debug({ error }, "a connection of a server failed in its handshake");
    socket.destroy();
  });
  tls.on("secureConnection", (socket) => {
    handshakes.end(socket);
    socket.on("error", () => socket.destroy());
    const name = socket.getPeerX509Certificate()?.subjectAltName;
    if (name === SERVER_IDENTITY) serve(socket, "server");
    else if (name === INGRESS_IDENTITY) serve(socket, "ingress");
    else socket.destroy();
  });
  const server = createServer({ noDelay: true }, (socket) => {
    probeWhenSilent(socket);
    handshakes.begin(socket);
    tls.emit("connection", socket);
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error) =>
      reject(
        new Error(
          `cannot listen for servers on ${listen.host}:${listen.port}: ${error.message}; change FLOTILLA_LINK_LISTEN`,
        ),
      ),
    );
    server.listen(listen, resolve);
  });
  return { close: () => void server.close() };
}

/** Before the node has joined it has no certificate, and every handshake fails. */
function contextOf({ identity }: Membership): SecureContextOptions {
  return identity === null ? { minVersion: "TLSv1.3" } : { ...identity, minVersion: "TLSv1.3" };
}

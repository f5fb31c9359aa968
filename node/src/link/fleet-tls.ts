/**
 * TLS connections from a node to servers of its fleet, and the first one, before it has joined.
 *
 * Always:
 * - After it has joined, a node talks only to a server whose certificate is of a fleet authority that it
 *   trusts.
 * - A node that joins trusts a certificate for the host of FLOTILLA_URL from a public authority, or of the
 *   fleet authority that its join token names. Without TLS it joins over loopback only. Before that it sends
 *   nothing.
 */
import { createHash } from "node:crypto";
import { connect as connectTcp, isIP, type Socket } from "node:net";
import { type ConnectionOptions, connect as connectTls, type DetailedPeerCertificate, type TLSSocket } from "node:tls";
import type { Clock } from "@flotilla/base/clock";
import { probeWhenSilent } from "@flotilla/base/probes";
import { errorOf } from "@flotilla/base/errors";
import { authorityServerName, SERVER_IDENTITY } from "@flotilla/contract/link/fleet";
import type { TlsIdentity } from "./membership.ts";

const CONNECT_MS = 10_000;

export interface Endpoint {
  readonly host: string;
  readonly port: number;
}

/** Parses `host:port` or `[v6]:port`. */
export function endpointOf(address: string): Endpoint {
  const { hostname, port } = new URL(`tcp://${address}`);
  return { host: hostname.replace(/^\[|\]$/g, ""), port: Number(port) };
}

/**
 * How a node that has joined connects to a server, or to an ingress. `authority`: the fingerprint of one that
 * it trusts; `expected`: the other end's name in its certificate.
 */
export const fleetOptions = (
  { key, cert, ca }: TlsIdentity,
  authority: string,
  expected: string = SERVER_IDENTITY,
): ConnectionOptions => ({
  key,
  cert,
  ca,
  minVersion: "TLSv1.3",
  servername: authorityServerName(authority),
  checkServerIdentity: (_host, { subjectaltname }) =>
    subjectaltname === expected ? undefined : new Error(`the certificate is not ${expected} of the fleet`),
});

/** Opens a connection; rejects when there is none in time. */
export function openTls(options: ConnectionOptions, clock: Clock): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const socket = connectTls(options);
    probeWhenSilent(socket.setNoDelay(true));
    const late = clock.timer(CONNECT_MS, () => socket.destroy(failure("no answer in time", "ETIMEDOUT")));
    const fail = (error: Error): void => reject(readable(error));
    socket.once("error", fail);
    socket.once("close", () => reject(failure("the connection was closed in its handshake", "ECONNRESET")));
    socket.once("secureConnect", () => {
      late.cancel();
      socket.off("error", fail);
      socket.on("error", () => socket.destroy());
      resolve(socket);
    });
  });
}

/** An error of TLS without the places in OpenSSL's source. */
function readable(error: NodeJS.ErrnoException & { readonly reason?: string }): Error {
  const { code = "", reason } = error;
  return reason !== undefined && /^(EPROTO|ERR_SSL_)/.test(code) ? failure(`TLS: ${reason}`, code) : error;
}

const failure = (text: string, code: string): Error => Object.assign(new Error(text), { code });

/**
 * Explains an error of a connection to a server: certificates are verified with this host's clock, which may
 * be wrong.
 */
export function explained(error: unknown, clock: Pick<Clock, "now">): Error {
  const code = (error as NodeJS.ErrnoException | null)?.code;
  if (code !== "CERT_NOT_YET_VALID" && code !== "CERT_HAS_EXPIRED") return errorOf(error);
  const fault = code === "CERT_HAS_EXPIRED" ? "has expired" : "is not valid yet";
  const text = `the server's certificate ${fault} by this host's clock, which shows ${new Date(clock.now()).toISOString()}: set the clocks of this host and of the server; they may differ by an hour. If both are right, the server made its authority by a clock that was wrong: \`flotilla authority rotate\` makes another one`;
  return new Error(text, { cause: error });
}

/**
 * A connection to the server of a node that has not joined. `authority`: from its join token. Rejects with
 * what to do.
 */
export async function connectToJoin(url: URL, authority: string | null, clock: Clock): Promise<Socket> {
  const host = url.hostname.replace(/^\[|\]$/g, "");
  if (url.protocol === "http:") {
    if (host !== "localhost" && host !== "::1" && !host.startsWith("127."))
      throw new Error(
        `${url.origin} is not protected, and a join token must not be sent in the clear: set FLOTILLA_URL to the https:// address of the server, such as its FLOTILLA_NODE_LISTEN`,
      );
    return await openTcp({ host, port: Number(url.port || 80) });
  }
  const at = { host, port: Number(url.port || 443) };
  try {
    return await openTls({ ...at, ...(isIP(host) === 0 ? { servername: host } : {}) }, clock);
  } catch (error) {
    if (!isUntrusted(error)) throw error;
  }
  const trusted = authority === null ? null : await findAuthority(at, authority, clock);
  if (trusted === null || authority === null)
    throw new Error(
      `the server at ${url.origin} is not trusted: its certificate is neither from a public authority nor of the fleet that the join token names; check FLOTILLA_URL, or create another token`,
    );
  const { servername, checkServerIdentity } = fleetOptions({ key: "", cert: "", ca: [] }, authority);
  const options = { ...at, ca: trusted, minVersion: "TLSv1.3", servername, checkServerIdentity } as const;
  return await openTls(options, clock).catch((error: unknown) => {
    throw explained(error, clock);
  });
}

function openTcp(at: Endpoint): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connectTcp(at, () => {
      socket.off("error", reject);
      resolve(socket);
    });
    socket.once("error", reject);
  });
}

/** Whether there was a server, and its certificate was not verified. */
function isUntrusted(error: unknown): boolean {
  const code = (error as NodeJS.ErrnoException | null)?.code ?? "";
  return /CERT|SIGNATURE|ISSUER|ALTNAME/.test(code);
}

/**
 * The certificate with this fingerprint in what the server shows, as PEM. Nothing is sent on this connection.
 */
async function findAuthority(at: Endpoint, fingerprint: string, clock: Clock): Promise<string | null> {
  const socket = await openTls(
    { ...at, servername: authorityServerName(fingerprint), rejectUnauthorized: false },
    clock,
  );
  const seen = new Set<DetailedPeerCertificate>();
  for (let shown = socket.getPeerCertificate(true); shown?.raw !== undefined && !seen.has(shown); ) {
    seen.add(shown);
    shown = shown.issuerCertificate;
  }
  socket.destroy();
  const found = [...seen].find(({ raw }) => createHash("sha256").update(raw).digest("hex") === fingerprint);
  if (found === undefined) return null;
  return `-----BEGIN CERTIFICATE-----\n${found.raw.toString("base64")}\n-----END CERTIFICATE-----\n`;
}

/**
 * Whom servers and nodes on other hosts trust: the fleet authorities, this server's certificates, and those
 * of nodes.
 *
 * Always:
 * - The authorities are in PostgreSQL, their private keys encrypted with the key of this installation, so
 *   that every server has them. The first one is made when it is first needed; of two servers that make one
 *   at the same time, one row wins.
 * - One authority signs certificates of nodes. Retired ones are still trusted, and this server shows a
 *   certificate of each to clients that ask for it.
 * - This server's own key is in memory only; its certificates are renewed when half of their time has passed
 *   by the clock that others verify them with, so also after a pause of the host, and without the database.
 */
import { createHash, createPublicKey, generateKeyPairSync, type KeyObject, type X509Certificate } from "node:crypto";
import { createSecureContext, type SecureContext, type TLSSocket } from "node:tls";
import { Refusal } from "@flotilla/contract/errors";
import { authorityServerName, type FleetFacts, nodeOfIdentity } from "@flotilla/contract/link/fleet";
import type { NodeCertificate } from "../auth/caller.ts";
import type { Context } from "../context.ts";
import { forAll } from "../db/holder.ts";
import type { Secrets } from "../secrets.ts";
import { type Authority, authorityOf, isRenewalDue, issueCertificate, makeAuthority } from "./certificates.ts";
import { listIngressKeys, listIngressListeners, removeLostIngresses, writeCertificates } from "./ingress-store.ts";
import {
  insertFirstAuthority,
  listAuthorities,
  listListeners,
  removeRetiredAuthority,
  replaceAuthority,
} from "./fleet-store.ts";
import { notFound } from "../missing.ts";

/** How old what this server knows of authorities and listeners may be. A change is also notified. */
const FRESH_MS = 5_000;
/** A node accepts 16. */
const AUTHORITIES_MAX = 8;
const LISTENERS_FRESH_MS = 1_000;
/** A server that has not confirmed its listener for this long has ended. */
export const LISTENER_LOST_MS = 45_000;

/** What a listener for nodes shows and trusts. */
export interface HandshakeTrust {
  /** Rejects while there is nothing to show. */
  identity(): Promise<TlsIdentity>;
  /** Context of a handshake in which the client asks for `name`. */
  shownTo(name: string): Promise<SecureContext | undefined>;
}

/** What this server shows and trusts in a TLS handshake. */
export interface TlsIdentity {
  /** PEM. */
  readonly key: string;
  /** The certificate and its authority's, as PEM. */
  readonly cert: string;
  readonly ca: readonly string[];
}

/** Where nodes connect. */
type Listeners = Pick<FleetFacts, "listeners" | "ingresses">;

interface Known {
  readonly signing: Authority;
  /** With retired ones. */
  readonly all: readonly Authority[];
  readonly readAt: number;
  /** By the name for which a client asks. */
  readonly shown: ReadonlyMap<string, SecureContext>;
  readonly identity: TlsIdentity;
  /** When the certificate of the signing authority expires, in epoch milliseconds. */
  readonly expiresAt: number;
}

export class FleetTrust implements HandshakeTrust {
  readonly #context: Context;
  readonly #secrets: Secrets;
  readonly #key = generateKeyPairSync("ec", { namedCurve: "P-256" });
  readonly #unlisten: () => void;
  #known: Known | null = null;
  #reading: Promise<Known> | null = null;
  #listeners: (Listeners & { readonly readAt: number }) | null = null;

  constructor(context: Context, secrets: Secrets) {
    this.#context = context;
    this.#secrets = secrets;
    const reread = (): void => {
      this.#listeners = null;
      if (this.#known !== null) void this.#read().catch((error: unknown) => this.#notRead(error));
    };
    this.#unlisten = context.db.listen("fleet", { onPayload: reread, onGap: reread });
  }

  close(): void {
    this.#unlisten();
  }

  /** The fingerprint of the authority that signs. Makes the first one. */
  async fingerprint(): Promise<string> {
    return (await this.#current()).signing.fingerprint;
  }

  /** What this server shows and trusts as a TLS client. */
  async identity(): Promise<TlsIdentity> {
    return (await this.#current()).identity;
  }

  /**
   * Context of a handshake in which the client asks for `name`; without a known name, that of the authority
   * that signs.
   */
  async shownTo(name: string): Promise<SecureContext | undefined> {
    const { shown, signing } = await this.#current();
    return shown.get(name) ?? shown.get(authorityServerName(signing.fingerprint));
  }

  /** What a node that registers needs to know of its fleet, with a certificate over its public key. */
  async factsForKey(nodeId: string, publicKey: KeyObject): Promise<FleetFacts> {
    const { signing, all } = await this.#current();
    return {
      authorities: all.map(({ certificate }) => certificate),
      certificate: this.#issue(signing, `urn:flotilla:node:${nodeId}`, publicKey).certificate,
      ...(await this.listening()),
    };
  }

  /**
   * The same for a node that called with a certificate. It gets another one when half of that one's time has
   * passed, or when its authority no longer signs.
   */
  async factsFor({ nodeId, publicKey, authority, expiresAt }: NodeCertificate): Promise<FleetFacts> {
    const { signing, all } = await this.#current();
    const isDue = authority !== signing.subject || isRenewalDue(expiresAt, this.#context.clock.now());
    if (isDue) return await this.factsForKey(nodeId, createPublicKey(publicKey));
    return {
      authorities: all.map(({ certificate }) => certificate),
      certificate: null,
      ...(await this.listening()),
    };
  }

  /** Every trusted authority, the one that signs first. Makes the first one. */
  async list(): Promise<readonly Authority[]> {
    return (await this.#read()).all;
  }

  /**
   * Makes a new authority sign. Earlier ones stay trusted until they are removed; nodes get certificates of
   * the new one with their next heartbeats. Throws a Refusal.
   */
  async rotate(): Promise<void> {
    const { clock, db, randomBytes } = this.#context;
    const { signing, all } = await this.#read();
    if (all.length >= AUTHORITIES_MAX)
      throw new Refusal(
        "conflict",
        `the fleet has ${all.length} authorities; remove retired ones before another is made`,
      );
    const made = makeAuthority(randomBytes, clock.now());
    const row = { ...made, privateKey: this.#seal(made) };
    const isReplaced = await db.transaction((transaction) =>
      replaceAuthority(transaction, { retired: signing.fingerprint, row }),
    );
    if (!isReplaced)
      throw new Refusal(
        "conflict",
        "another server has replaced the authority at the same time; GET /v1/nodes/authorities lists them",
        { call: "GET /v1/nodes/authorities" },
      );
    await this.#changed(made.fingerprint);
  }

  /**
   * Ends the trust in a retired authority: servers' at once, a node's with its next heartbeat. Throws a
   * Refusal.
   */
  async remove(fingerprint: string): Promise<void> {
    const { signing } = await this.#read();
    if (signing.fingerprint === fingerprint)
      throw new Refusal("conflict", `authority ${fingerprint} signs certificates; rotate first, then remove it`);
    if (!(await removeRetiredAuthority(this.#context.db, fingerprint))) throw notFound("authority", fingerprint);
    await this.#changed(fingerprint);
  }

  async #changed(fingerprint: string): Promise<void> {
    await this.#context.db.notify("fleet", fingerprint);
    await this.#read();
  }

  /** Signs the certificates that ingresses lack. Returns how many ingresses got some. */
  async certifyIngresses(): Promise<number> {
    const { clock, db } = this.#context;
    const ingresses = await listIngressKeys(db, LISTENER_LOST_MS);
    if (ingresses.length === 0) return 0;
    const { all } = await this.#current();
    let count = 0;
    for (const { id, publicKey, certificates } of ingresses) {
      const isCurrent = ({ fingerprint }: Authority): boolean => {
        const { expiresAt } = certificates[fingerprint] ?? {};
        return expiresAt !== undefined && !isRenewalDue(expiresAt, clock.now());
      };
      if (all.length === Object.keys(certificates).length && all.every(isCurrent)) continue;
      const key = createPublicKey(publicKey);
      const signed = all.map((each) => [each.fingerprint, this.#issue(each, "urn:flotilla:ingress", key)] as const);
      await writeCertificates(db, { id, publicKey, certificates: Object.fromEntries(signed) });
      await db.notify("fleet", id);
      count += 1;
    }
    await removeLostIngresses(db, 10 * LISTENER_LOST_MS);
    return count;
  }

  /** Where running servers and ingresses listen for nodes. */
  async listening(): Promise<Listeners> {
    const { clock, db } = this.#context;
    if (this.#listeners === null || clock.monotonic() - this.#listeners.readAt > LISTENERS_FRESH_MS) {
      const readAt = clock.monotonic();
      const listeners = await listListeners(db, LISTENER_LOST_MS);
      this.#listeners = { listeners, ingresses: await listIngressListeners(db, LISTENER_LOST_MS), readAt };
    }
    const { listeners, ingresses } = this.#listeners;
    return { listeners, ingresses };
  }

  async #current(): Promise<Known> {
    const known = this.#known;
    if (known === null) return await this.#read();
    if (this.#context.clock.monotonic() - known.readAt > FRESH_MS)
      // A database that does not answer for a moment ends no trust.
      await this.#read().catch((error: unknown) => this.#notRead(error));
    return this.#renewed(this.#known ?? known);
  }

  /** Replaces this server's certificates when that is due. */
  #renewed(known: Known): Known {
    if (!isRenewalDue(known.expiresAt, this.#context.clock.now())) return known;
    this.#known = { ...known, ...this.#show(known.signing, known.all) };
    return this.#known;
  }

  #notRead(error: unknown): void {
    this.#context.log.warn({ error }, "the fleet's authorities could not be read");
  }

  #read(): Promise<Known> {
    this.#reading ??= forAll(() => this.#readAuthorities()).finally(() => {
      this.#reading = null;
    });
    return this.#reading;
  }

  async #readAuthorities(): Promise<Known> {
    const { clock, db, randomBytes } = this.#context;
    let rows = await listAuthorities(db);
    if (!rows.some(({ retiredAt }) => retiredAt === null)) {
      const made = makeAuthority(randomBytes, clock.now());
      await insertFirstAuthority(db, { ...made, privateKey: this.#seal(made) });
      rows = await listAuthorities(db);
    }
    const known = new Map(this.#known?.all.map((authority) => [authority.fingerprint, authority]));
    const all = rows.map((row) => {
      const held = known.get(row.fingerprint);
      if (held !== undefined) return held;
      const { privateKey = "" } = this.#secrets.open(ownerOf(row.fingerprint), row.privateKey);
      return authorityOf(row.certificate, privateKey, row.createdAt);
    });
    const [signing] = all;
    if (signing === undefined) throw new Error("no fleet authority signs");
    const before = this.#known;
    const readAt = clock.monotonic();
    const isSame =
      before !== null && before.all.length === all.length && before.all.every((each, index) => each === all[index]);
    this.#known = isSame ? { ...before, readAt } : { ...this.#show(signing, all), signing, all, readAt };
    return this.#known;
  }

  /** Encrypts an authority's private key for its row. */
  #seal({ fingerprint, key }: Authority): Buffer {
    const privateKey = key.export({ type: "pkcs8", format: "pem" }).toString();
    return this.#secrets.seal(ownerOf(fingerprint), { privateKey });
  }

  /** Makes this server's certificates, one of each authority. */
  #show(signing: Authority, all: readonly Authority[]): Pick<Known, "shown" | "identity" | "expiresAt"> {
    const ca = all.map(({ certificate }) => certificate);
    const key = this.#key.privateKey.export({ type: "pkcs8", format: "pem" }).toString();
    const issue = (authority: Authority): { readonly identity: TlsIdentity; readonly expiresAt: number } => {
      const { certificate, expiresAt } = this.#issue(authority, "urn:flotilla:server", this.#key.publicKey);
      return { identity: { key, cert: certificate + authority.certificate, ca }, expiresAt };
    };
    const shown = new Map<string, SecureContext>();
    for (const authority of all) {
      const { cert } = issue(authority).identity;
      const context = createSecureContext({ key, cert, ca: [...ca], minVersion: "TLSv1.3" });
      shown.set(authorityServerName(authority.fingerprint), context);
    }
    return { shown, ...issue(signing) };
  }

  #issue(authority: Authority, identity: string, publicKey: KeyObject) {
    const { clock, randomBytes } = this.#context;
    return issueCertificate(authority, { identity, publicKey }, { randomBytes, now: clock.now() });
  }
}

const ownerOf = (fingerprint: string): string => `fleet authority ${fingerprint}`;

/**
 * The certificate of a node at the other end of a verified connection; null: it has shown none that is valid.
 */
export function certificateOf(socket: TLSSocket): NodeCertificate | null {
  const shown = socket.authorized ? socket.getPeerX509Certificate() : undefined;
  const nodeId = nodeOfIdentity(shown?.subjectAltName ?? "");
  return shown === undefined || nodeId === undefined ? null : nodeCertificate(shown, nodeId);
}

function nodeCertificate({ publicKey, validTo, issuer }: X509Certificate, nodeId: string): NodeCertificate {
  return {
    nodeId,
    keyHash: keyHashOf(publicKey),
    publicKey: publicKey.export({ type: "spki", format: "pem" }).toString(),
    expiresAt: Date.parse(validTo),
    authority: issuer,
  };
}

/** SHA-256 of a public key, in hex. */
export const keyHashOf = (publicKey: KeyObject): string =>
  createHash("sha256")
    .update(publicKey.export({ type: "spki", format: "der" }))
    .digest("hex");

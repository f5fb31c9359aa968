/**
 * Whom an ingress process trusts, and what it shows to nodes that connect to it. Servers sign its
 * certificates.
 *
 * Always:
 * - Its key is in memory only. It writes the public key to its row and reads the certificates from there, so
 *   it needs neither an authority's key nor a secret that it shares with servers.
 * - Its certificates identify an ingress: a node lets it connect to ports of machines, and nothing else.
 *
 * A crash leaves its row, which nodes ignore after LISTENER_LOST_MS.
 */
import { generateKeyPairSync } from "node:crypto";
import { createSecureContext, type SecureContext } from "node:tls";
import { authorityServerName } from "@flotilla/contract/link/fleet";
import type { Context } from "../context.ts";
import type { Announcer } from "./fleet-listener.ts";
import { findIngressCertificates, listAuthorityCertificates, removeIngress, upsertIngress } from "./ingress-store.ts";
import type { HandshakeTrust, TlsIdentity } from "./trust.ts";

/** How old what it knows may be. A change is also notified. */
const FRESH_MS = 5_000;

interface Known {
  /** By the name for which a client asks. */
  readonly shown: ReadonlyMap<string, SecureContext>;
  readonly identity: TlsIdentity;
  readonly readAt: number;
}

export class IngressTrust implements HandshakeTrust, Announcer {
  readonly #context: Context;
  readonly #key: string;
  readonly #publicKey: string;
  readonly #unlisten: () => void;
  #id: string | null = null;
  #known: Known | null = null;

  constructor(context: Context) {
    this.#context = context;
    const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
    this.#key = privateKey.export({ type: "pkcs8", format: "pem" }).toString();
    this.#publicKey = publicKey.export({ type: "spki", format: "pem" }).toString();
    const forget = (): void => {
      if (this.#known !== null) this.#known = { ...this.#known, readAt: Number.NEGATIVE_INFINITY };
    };
    this.#unlisten = context.db.listen("fleet", { onPayload: forget, onGap: forget });
  }

  close(): void {
    this.#unlisten();
  }

  /** Announces where it listens, with its key. Without the database it is announced later. */
  async confirm(id: string, addresses: readonly string[]): Promise<void> {
    const { db, log } = this.#context;
    this.#id = id;
    try {
      await upsertIngress(db, { id, addresses, publicKey: this.#publicKey });
      // Servers sign its certificates.
      if (this.#known === null) await db.notify("fleet", id);
    } catch (error) {
      log.warn({ error }, "the listener for nodes could not be announced");
    }
  }

  withdraw(id: string): Promise<void> {
    return removeIngress(this.#context.db, id);
  }

  /** Rejects while no server has signed a certificate. */
  async identity(): Promise<TlsIdentity> {
    return (await this.#current()).identity;
  }

  async shownTo(name: string): Promise<SecureContext | undefined> {
    return (await this.#current()).shown.get(name);
  }

  async #current(): Promise<Known> {
    const { clock, log } = this.#context;
    if (this.#known !== null && clock.monotonic() - this.#known.readAt <= FRESH_MS) return this.#known;
    return await this.#read().catch((error: unknown) => {
      // A database that does not answer for a moment ends no trust.
      log.debug({ error }, "the certificates of this ingress could not be read");
      if (this.#known === null) throw error;
      return this.#known;
    });
  }

  async #read(): Promise<Known> {
    const { db, clock } = this.#context;
    const readAt = clock.monotonic();
    const authorities = await listAuthorityCertificates(db);
    const certificates =
      this.#id === null ? {} : await findIngressCertificates(db, { id: this.#id, publicKey: this.#publicKey });
    const ca = [...authorities.values()];
    const key = this.#key;
    const shown = new Map<string, SecureContext>();
    let identity: TlsIdentity | null = null;
    for (const [fingerprint, authority] of authorities) {
      const certificate = certificates?.[fingerprint]?.certificate;
      if (certificate === undefined) continue;
      const own = { key, cert: certificate + authority, ca };
      identity ??= own;
      shown.set(authorityServerName(fingerprint), createSecureContext({ ...own, ca: [...ca], minVersion: "TLSv1.3" }));
    }
    if (identity === null) throw new Error("no server has signed a certificate of this ingress yet");
    this.#known = { shown, identity, readAt };
    return this.#known;
  }
}

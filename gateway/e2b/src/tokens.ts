/**
 * The tokens of sandboxes, all made from the gateway's secret.
 *
 * Always:
 * - An access token is the caller's key and the sandbox, sealed: it ends with the key, opens no other
 *   sandbox, and works at every gateway with the same secret, also after a restart. The same key and sandbox
 *   have the same token, because signatures of addresses are made from it.
 * - What the helper in a machine and the visitors of a port know opens nothing else.
 */
import { createCipheriv, createDecipheriv, createHash, createHmac, timingSafeEqual } from "node:crypto";

const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const TOKEN_FORM = /^[A-Za-z0-9_-]{40,400}$/;
const SIGNATURE_VERSION = "v1_";

export interface Grant {
  readonly key: string;
  readonly sandboxId: string;
}

export class Tokens {
  readonly #secret: Buffer;

  constructor(secret: Buffer) {
    this.#secret = secret;
  }

  /** The token with which a client uses the sandbox. */
  seal({ key, sandboxId }: Grant): string {
    const text = `${sandboxId} ${key}`;
    const nonce = this.#derive("nonce", text).subarray(0, NONCE_BYTES);
    const cipher = createCipheriv("aes-256-gcm", this.#derive("seal", ""), nonce);
    const sealed = Buffer.concat([cipher.update(text, "utf8"), cipher.final()]);
    return Buffer.concat([nonce, sealed, cipher.getAuthTag()]).toString("base64url");
  }

  /** null: it is not one of this secret. */
  open(token: string): Grant | null {
    if (!TOKEN_FORM.test(token)) return null;
    const bytes = Buffer.from(token, "base64url");
    const decipher = createDecipheriv("aes-256-gcm", this.#derive("seal", ""), bytes.subarray(0, NONCE_BYTES));
    decipher.setAuthTag(bytes.subarray(-TAG_BYTES));
    try {
      const sealed = bytes.subarray(NONCE_BYTES, -TAG_BYTES);
      const text = Buffer.concat([decipher.update(sealed), decipher.final()]).toString("utf8");
      const [sandboxId = "", key = ""] = text.split(" ");
      return { key, sandboxId };
    } catch {
      return null;
    }
  }

  /** What the helper in the machine accepts. Clones of the machine have the same seed. */
  ofHelper(seed: string): string {
    return this.#derive("helper", seed).toString("base64url");
  }

  /** What visitors of a sandbox send that is not open to everybody. */
  ofTraffic(sandboxId: string): string {
    return this.#derive("traffic", sandboxId).toString("base64url");
  }

  #derive(purpose: string, text: string): Buffer {
    return createHmac("sha256", this.#secret).update(`${purpose}\0${text}`).digest();
  }
}

export interface Signed {
  readonly path: string;
  readonly operation: "read" | "write";
  readonly user: string;
  /** Epoch seconds; null: it does not end. */
  readonly expiration: string | null;
}

/** The signature of an address of a file, as E2B's clients make it. */
export function signatureOf({ path, operation, user, expiration }: Signed, token: string): string {
  const text = [path, operation, user, token, ...(expiration === null ? [] : [expiration])].join(":");
  const hash = createHash("sha256").update(text).digest("base64");
  return SIGNATURE_VERSION + hash.replace(/=+$/, "");
}

/** Compares secrets without telling where they differ. */
export function isSame(one: string, other: string): boolean {
  const hash = (text: string): Buffer => createHash("sha256").update(text).digest();
  return timingSafeEqual(hash(one), hash(other));
}

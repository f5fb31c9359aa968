/**
 * Encrypts secrets for the database (secret variables of machines, secrets of webhooks): AES-256-GCM with a
 * key of this installation, bound to the id of their owner.
 *
 * Form: 8 bytes that name the key, 12 of nonce, 16 of tag, then the ciphertext of a JSON object.
 *
 * Always: the key is in a file that its owner alone can read, and not in the database; it is made for the
 * first secret, and on the disk before that. Servers of one database need the same file. A crash while it is
 * made leaves no file, or a whole one.
 */
import { createCipheriv, createDecipheriv, createHmac, hash } from "node:crypto";
import { closeSync, fsyncSync, linkSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { Refusal } from "@flotilla/contract/errors";

const KEY_BYTES = 32;
/** Length of the beginning of what is encrypted, which names the key. */
export const KEY_NAME_BYTES = 8;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

type Values = Readonly<Record<string, string>>;

export class Secrets {
  readonly #path: string;
  readonly #randomBytes: (size: number) => Buffer;
  #key: Buffer | undefined;

  constructor(path: string, randomBytes: (size: number) => Buffer) {
    this.#path = path;
    this.#randomBytes = randomBytes;
  }

  /** Throws when the key's file cannot be made or read. */
  seal(ownerId: string, values: Values): Buffer {
    const key = this.#key ?? this.#makeKey();
    const nonce = this.#randomBytes(NONCE_BYTES);
    const cipher = createCipheriv("aes-256-gcm", key, nonce).setAAD(Buffer.from(ownerId));
    const sealed = Buffer.concat([cipher.update(JSON.stringify(values)), cipher.final()]);
    return Buffer.concat([nameOf(key), nonce, cipher.getAuthTag(), sealed]);
  }

  /** Throws a Refusal when this server has not the key with which it was sealed. */
  open(ownerId: string, sealed: Buffer): Values {
    const key = this.#key ?? this.#readKey();
    if (key === undefined || !sealed.subarray(0, KEY_NAME_BYTES).equals(nameOf(key))) {
      const text = `the secrets of ${ownerId} were encrypted with another key than this server's; give it the file secrets.key of the server that made ${ownerId}`;
      throw new Refusal("unavailable", text);
    }
    const nonce = sealed.subarray(KEY_NAME_BYTES, KEY_NAME_BYTES + NONCE_BYTES);
    const tag = sealed.subarray(KEY_NAME_BYTES + NONCE_BYTES, KEY_NAME_BYTES + NONCE_BYTES + TAG_BYTES);
    const cipher = createDecipheriv("aes-256-gcm", key, nonce).setAAD(Buffer.from(ownerId)).setAuthTag(tag);
    const rest = sealed.subarray(KEY_NAME_BYTES + NONCE_BYTES + TAG_BYTES);
    return JSON.parse(Buffer.concat([cipher.update(rest), cipher.final()]).toString()) as Values;
  }

  /** Bytes that only this installation can derive from the text. Throws when the key's file cannot be made. */
  derive(text: string): Buffer {
    return createHmac("sha256", this.#key ?? this.#makeKey())
      .update(text)
      .digest();
  }

  /**
   * The first bytes of everything that this server can open; null: it has no key yet. Throws when the key's
   * file cannot be read.
   */
  get keyName(): Buffer | null {
    const key = this.#key ?? this.#readKey();
    return key === undefined ? null : nameOf(key);
  }

  #makeKey(): Buffer {
    const known = this.#readKey();
    if (known !== undefined) return known;
    const temporary = `${this.#path}.${this.#randomBytes(4).toString("hex")}`;
    // tidy-allow blocking: 65 bytes, once in the life of an installation
    writeFileSync(temporary, `${this.#randomBytes(KEY_BYTES).toString("hex")}\n`, { mode: 0o600, flush: true });
    try {
      linkSync(temporary, this.#path);
    } catch (error) {
      // Another server made it at the same time.
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    } finally {
      rmSync(temporary);
    }
    // Its name as well: the database, which may be on another host, has the secret in a moment.
    const directory = openSync(dirname(this.#path), "r");
    fsyncSync(directory);
    closeSync(directory);
    const made = this.#readKey();
    if (made === undefined) throw new Error(`${this.#path} was made and is gone`);
    return made;
  }

  #readKey(): Buffer | undefined {
    let text: string;
    try {
      // tidy-allow blocking: 65 bytes, once in the life of a server
      text = readFileSync(this.#path, "utf8").trim();
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
      throw error;
    }
    if (!/^[0-9a-f]{64}$/.test(text)) throw new Error(`${this.#path} holds no key of 64 hexadecimal digits`);
    this.#key = Buffer.from(text, "hex");
    return this.#key;
  }
}

const nameOf = (key: Buffer): Buffer => Buffer.from(hash("sha256", key, "hex"), "hex").subarray(0, KEY_NAME_BYTES);

/**
 * The form of an API key and its hash. Pure.
 *
 * A key is `smk_` and 256 random bits, so a plain SHA-256 is enough: there is nothing to guess that a slow hash
 * would protect.
 */
import { hash } from "node:crypto";

const KEY_FORM = /^smk_[A-Za-z0-9_-]{43}$/;

export const makeKey = (randomBytes: (size: number) => Buffer): string =>
  `smk_${randomBytes(32).toString("base64url")}`;

export const hasKeyForm = (text: string): boolean => KEY_FORM.test(text);

export const hashKey = (key: string): Buffer => Buffer.from(hashedName(key), "hex");

/** The same in hex digits: what a key is called in memory. As text because that is five times as fast as bytes. */
export const hashedName = (key: string): string => hash("sha256", key, "hex");

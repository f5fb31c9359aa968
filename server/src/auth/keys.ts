/**
 * The forms of API keys, connect tokens, share tokens and those of the console, and their hash. Pure.
 *
 * Each is a prefix and 256 random bits, so a plain SHA-256 is enough: a slow hash protects only secrets that
 * can be guessed.
 */
import { hash } from "node:crypto";

type RandomBytes = (size: number) => Buffer;

const KEY_FORM = /^smk_[A-Za-z0-9_-]{43}$/;
const CONNECT_TOKEN_FORM = /^smc_[A-Za-z0-9_-]{43}$/;
const SHARE_TOKEN_FORM = /^sms_[A-Za-z0-9_-]{43}$/;
const SESSION_TOKEN_FORM = /^smb_[A-Za-z0-9_-]{43}$/;
const LINK_TOKEN_FORM = /^sml_[A-Za-z0-9_-]{43}$/;

const random = (randomBytes: RandomBytes): string => randomBytes(32).toString("base64url");

export const makeKey = (randomBytes: RandomBytes): string => `smk_${random(randomBytes)}`;
export const makeShareToken = (randomBytes: RandomBytes): string => `sms_${random(randomBytes)}`;
export const makeConnectToken = (randomBytes: RandomBytes): string => `smc_${random(randomBytes)}`;

/** The token of a browser that is signed in to the console. */
export const makeSessionToken = (randomBytes: RandomBytes): string => `smb_${random(randomBytes)}`;
/** The token of a one-time link to the console. */
export const makeLinkToken = (randomBytes: RandomBytes): string => `sml_${random(randomBytes)}`;

export const hasKeyForm = (text: string): boolean => KEY_FORM.test(text);
export const hasConnectTokenForm = (text: string | undefined): boolean => CONNECT_TOKEN_FORM.test(text ?? "");
export const hasShareTokenForm = (text: string | undefined): boolean => SHARE_TOKEN_FORM.test(text ?? "");
export const hasSessionTokenForm = (text: string): boolean => SESSION_TOKEN_FORM.test(text);
export const hasLinkTokenForm = (text: string): boolean => LINK_TOKEN_FORM.test(text);

/** Whether a bearer has the form of our credentials, valid or not: a guest must not see it. */
export const isOwnCredential = (text: string | undefined): boolean => /^sm[bckls]_[A-Za-z0-9_-]{43}$/.test(text ?? "");

/** Whether a header's value contains one of our credentials. */
export const holdsOwnCredential = (text: string): boolean => /\bsm[bckls]_[A-Za-z0-9_-]{43}/.test(text);

/** Hash of a key of any kind. */
export const hashKey = (key: string): Buffer => Buffer.from(hashedName(key), "hex");

/** The hash in hex digits, the name of a key in memory. Text is five times as fast as bytes. */
export const hashedName = (key: string): string => hash("sha256", key, "hex");

/**
 * Tokens of the registry: made for an API key and some repositories, and read again on each request.
 *
 * Always:
 * - A token is encrypted with the key of this installation (secrets.ts), so only a server of it can make or
 *   read one.
 * - It names its API key by hash: once that is revoked, the token permits nothing.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { Context } from "../context.ts";
import { KEY_NAME_BYTES, type Secrets } from "../secrets.ts";
import type { Action, Scope } from "./paths.ts";

const TOKEN_MS = 15 * 60_000;
const OWNER = "registry token";
const FORM = /^smr_[A-Za-z0-9_-]{40,16000}$/;

export interface RegistryToken {
  /** Random, for its leases. */
  readonly id: string;
  /** SHA-256 of the API key in hex. */
  readonly keyHash: string;
  readonly scopes: readonly Scope[];
  /** Epoch milliseconds. */
  readonly expiresAt: number;
}

type Parts = { readonly secrets: Secrets; readonly context: Pick<Context, "clock" | "randomBytes"> };

export const TOKEN_SECONDS = TOKEN_MS / 1_000;
export const hasTokenForm = (text: string): boolean => FORM.test(text);

export function makeToken(
  { secrets, context }: Parts,
  { keyHash, scopes }: Pick<RegistryToken, "keyHash" | "scopes">,
): { readonly text: string; readonly id: string } {
  const id = context.randomBytes(12).toString("hex");
  const sealed = secrets.seal(OWNER, {
    ...{ id, keyHash },
    scopes: JSON.stringify(scopes.map(({ repository, actions }) => [repository, ...actions])),
    expiresAt: String(context.clock.now() + TOKEN_MS),
  });
  return { text: `smr_${sealed.toString("base64url")}`, id };
}

/** undefined: it is not one of this installation, or has expired. */
export function readToken({ secrets, context }: Parts, text: string): RegistryToken | undefined {
  const sealed = Buffer.from(text.slice(4), "base64url");
  if (sealed.length <= KEY_NAME_BYTES) return undefined;
  let values: Readonly<Record<string, string>>;
  try {
    values = secrets.open(OWNER, sealed);
  } catch (error) {
    // Changed, cut, or made by another installation.
    if (error instanceof Refusal || (error as NodeJS.ErrnoException).code?.startsWith("ERR_") === true)
      return undefined;
    if (error instanceof Error && /auth|tag|state/i.test(error.message)) return undefined;
    throw error;
  }
  const expiresAt = Number(values["expiresAt"]);
  if (!(expiresAt > context.clock.now())) return undefined;
  const scopes = (JSON.parse(values["scopes"] ?? "[]") as [string, ...Action[]][]).map(([repository, ...actions]) => ({
    ...{ repository, actions },
  }));
  return { id: values["id"] ?? "", keyHash: values["keyHash"] ?? "", scopes, expiresAt };
}

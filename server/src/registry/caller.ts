/**
 * What a caller of the registry may do with a repository. Pure.
 *
 * Always:
 * - A repository of another tenant is like one that does not exist, whatever the scopes.
 * - A token permits no more than its key does now.
 */
import { grants, type Scope as KeyScope } from "@flotilla/contract/scopes";
import { parseRepository } from "@flotilla/contract/reference";
import type { KnownKey } from "../auth/key-cache.ts";
import { denied, nameUnknown, type OciError } from "./oci-error.ts";
import type { Action, Scope } from "./paths.ts";

/** A caller with an API key, or with a token that was made for one. */
export interface KeyCaller {
  readonly key: KnownKey;
  /** What holds its leases. */
  readonly holder: string;
  /** What its token is for; null: it called with the key itself. */
  readonly scopes: readonly Scope[] | null;
}

const SCOPE_OF: Readonly<Record<Action, KeyScope>> = {
  pull: "machine:read",
  push: "machine:create",
  delete: "machine:delete",
};

/** null: it may. `challenge`: it may, with another token. */
export function refusalOf(
  { key, scopes }: Pick<KeyCaller, "key" | "scopes">,
  { repository, action }: { readonly repository: string; readonly action: Action },
): OciError | "challenge" | null {
  const owner = parseRepository(repository);
  const isOwn = owner?.tenantId === key.tenantId;
  const isLibrary = owner !== null && owner.tenantId === null;
  if (!isOwn && !isLibrary)
    return action === "pull"
      ? nameUnknown(repository)
      : denied(`this key may only write repositories below tenants/${key.tenantId}/, and ${repository} is not one`);
  if (isLibrary && action !== "pull" && !key.isAdmin)
    return denied(`only operators write repositories of the library; write to tenants/${key.tenantId}/`);
  if (!grants(key.scopes, SCOPE_OF[action]))
    return denied(`the API key lacks the scope ${SCOPE_OF[action]}, which a ${action} needs`);
  const isInToken = scopes?.some((scope) => scope.repository === repository && scope.actions.includes(action));
  return isInToken === false ? "challenge" : null;
}

/** The part of the requested scopes that the key permits. */
export const permitted = (key: KnownKey, scopes: readonly Scope[]): readonly Scope[] =>
  scopes
    .map(({ repository, actions }) => ({
      repository,
      actions: actions.filter((action) => refusalOf({ key, scopes: null }, { repository, action }) === null),
    }))
    .filter(({ actions }) => actions.length > 0);

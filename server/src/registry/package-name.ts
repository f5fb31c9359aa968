/**
 * Which repository of the registry a caller means, and whether it may be read or written. Pure.
 *
 * Always: a repository of another tenant is refused as one that does not exist.
 */
import { ownMessageOf } from "@flotilla/base/errors";
import { Refusal } from "@flotilla/contract/errors";
import { parsePackageReference, parseRepository } from "@flotilla/contract/reference";

export interface PackageOwner {
  readonly tenantId: string;
  readonly isAdmin: boolean;
}

/** A package in the registry of this fleet. */
export interface PackageName {
  readonly repository: string;
  /** A tag or a digest. */
  readonly target: string;
  readonly isDigest: boolean;
}

export const packageNotFound = (reference: string): Refusal =>
  new Refusal("not_found", `package ${reference} was not found; GET /v1/packages lists those that there are`, {
    call: "GET /v1/packages",
  });

/** `field`: where the caller wrote it. Throws a Refusal. */
export function packageOf(text: string, tenantId: string, field: string): PackageName {
  const named = parsed(text, tenantId, field);
  if (named.kind === "foreign")
    throw new Refusal("invalid_request", `${text} names another registry; packages there are managed there`, { field });
  const owner = parseRepository(named.repository);
  if (owner === null || (owner.tenantId !== null && owner.tenantId !== tenantId)) throw packageNotFound(text);
  return { repository: named.repository, target: named.target, isDigest: named.digest !== null };
}

/** The same, of one that the caller may change. */
export function ownPackageOf(text: string, owner: PackageOwner, field: string): PackageName {
  const name = packageOf(text, owner.tenantId, field);
  if (parseRepository(name.repository)?.tenantId === null && !owner.isAdmin)
    throw new Refusal(
      "missing_scope",
      `${name.repository} is of the library, which operators write; use a name without library/`,
    );
  return name;
}

/** A repository that the caller may change, without a tag. */
export function ownRepositoryOf(name: string, owner: PackageOwner, field: string): string {
  const { repository, target, isDigest } = ownPackageOf(name, owner, field);
  if (isDigest || name.endsWith(`:${target}`))
    throw new Refusal("invalid_request", `${field} ${JSON.stringify(name)} is a name alone, without a tag or digest`, {
      field,
    });
  return repository;
}

function parsed(text: string, tenantId: string, field: string): ReturnType<typeof parsePackageReference> {
  try {
    return parsePackageReference(text, tenantId);
  } catch (error) {
    throw new Refusal("invalid_request", ownMessageOf(error), { field });
  }
}

/** What a machine's package is called when no name is given: as the machine, where a repository may be. */
export function defaultNameOf({ id, name }: { readonly id: string; readonly name: string | null }): string {
  const parts = (name ?? "").toLowerCase().match(/[a-z0-9]+/g) ?? [];
  return parts.length === 0 ? id : parts.join("-");
}

/** `tenants/t/web` as its owner writes it: `web`. */
export const shortName = (repository: string): string => {
  const owner = parseRepository(repository);
  return owner === null || owner.tenantId === null ? repository : owner.name;
};

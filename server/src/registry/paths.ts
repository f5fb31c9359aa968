/**
 * What a request below `/v2/` is about, from its method and URL. Pure.
 *
 * Always: a repository that is named has a name that can exist, and a digest is one; anything else is refused
 * here, so nothing else reaches a statement or the backend.
 */
import { isDigest, isTag, parseRepository } from "@flotilla/contract/reference";
import { OciError } from "./oci-error.ts";

export type Action = "pull" | "push" | "delete";

/** A tag, or a digest. */
export type Target = { readonly tag: string } | { readonly digest: string };

interface InRepository {
  readonly repository: string;
  /** What the caller has to be allowed. */
  readonly action: Action;
  readonly query: URLSearchParams;
}

export type RegistryRoute =
  | { readonly kind: "version" }
  | { readonly kind: "token"; readonly query: URLSearchParams }
  | { readonly kind: "catalog" }
  | ({ readonly kind: "readManifest" | "putManifest" | "deleteManifest"; readonly target: Target } & InRepository)
  | ({ readonly kind: "readBlob"; readonly digest: string } & InRepository)
  | ({ readonly kind: "beginUpload" } & InRepository)
  | ({
      readonly kind: "appendUpload" | "endUpload" | "readUpload" | "cancelUpload";
      readonly id: string;
    } & InRepository)
  | ({ readonly kind: "listTags" } & InRepository);

const PREFIX = "/v2";
const UPLOAD_ID = /^[0-9a-f]{32}$/;
const PATH_CHARACTERS_MAX = 1_024;

/** Whether the request is the registry's, whatever it asks for. */
export const isForRegistry = (url: string): boolean => /^\/v2(?:[/?]|$)/.test(url);

/** Throws an OciError for what is not served. */
export function routeOf(method: string, url: string): RegistryRoute {
  const [path = "", ...rest] = url.split("?");
  const query = new URLSearchParams(rest.join("?"));
  const isRead = method === "GET" || method === "HEAD";
  if (path === PREFIX || path === `${PREFIX}/`) return isRead ? { kind: "version" } : refuseMethod("GET, HEAD");
  if (path === `${PREFIX}/auth`) return method === "GET" ? { kind: "token", query } : refuseMethod("GET");
  if (path === `${PREFIX}/_catalog`) return { kind: "catalog" };
  const found =
    path.length > PATH_CHARACTERS_MAX
      ? null
      : /^\/v2\/(.+)\/(?:(manifests)\/([^/]+)|(blobs)\/([^/]+)|(blobs\/uploads)\/([^/]*)|(tags)\/list)$/.exec(path);
  if (found === null) throw new OciError(404, "UNSUPPORTED", "no such path");
  const [, repository = "", manifests, target = "", blobs, digest = "", uploads, id = "", tags] = found;
  if (parseRepository(repository) === null)
    throw new OciError(
      404,
      "NAME_UNKNOWN",
      `repository ${shown(repository)} was not found; its name begins with tenants/TENANT/ or library/`,
    );
  const at = { repository, query };
  if (manifests !== undefined) return manifestRoute(method, at, target);
  if (blobs !== undefined && digest !== "uploads") return blobRoute(method, at, digest);
  if (uploads !== undefined || blobs !== undefined) return uploadRoute(method, at, id);
  if (tags !== undefined && method === "GET") return { kind: "listTags", ...at, action: "pull" };
  return refuseMethod("GET");
}

type At = Omit<InRepository, "action">;

function manifestRoute(method: string, at: At, text: string): RegistryRoute {
  const name = decoded(text);
  const target = isDigest(name) ? { digest: name } : isTag(name) ? { tag: name } : null;
  if (target === null)
    throw name.includes(":")
      ? new OciError(400, "DIGEST_INVALID", `${shown(name)} is not a sha256 digest`)
      : new OciError(400, "TAG_INVALID", `${shown(name)} is not a tag: up to 128 letters, digits, '_', '.', '-'`);
  if (method === "GET" || method === "HEAD") return { kind: "readManifest", ...at, target, action: "pull" };
  if (method === "PUT") return { kind: "putManifest", ...at, target, action: "push" };
  if (method === "DELETE") return { kind: "deleteManifest", ...at, target, action: "delete" };
  return refuseMethod("GET, HEAD, PUT, DELETE");
}

function blobRoute(method: string, at: At, text: string): RegistryRoute {
  const digest = decoded(text);
  if (!isDigest(digest)) throw new OciError(400, "DIGEST_INVALID", `${shown(digest)} is not a sha256 digest`);
  if (method === "GET" || method === "HEAD") return { kind: "readBlob", ...at, digest, action: "pull" };
  if (method === "DELETE")
    throw new OciError(405, "UNSUPPORTED", "blobs end by themselves once no manifest names them; delete the manifest");
  return refuseMethod("GET, HEAD");
}

function uploadRoute(method: string, at: At, id: string): RegistryRoute {
  if (id === "") return method === "POST" ? { kind: "beginUpload", ...at, action: "push" } : refuseMethod("POST");
  if (!UPLOAD_ID.test(id)) throw new OciError(404, "BLOB_UPLOAD_UNKNOWN", "the upload was not found");
  if (method === "PATCH") return { kind: "appendUpload", ...at, id, action: "push" };
  if (method === "PUT") return { kind: "endUpload", ...at, id, action: "push" };
  if (method === "GET" || method === "HEAD") return { kind: "readUpload", ...at, id, action: "push" };
  if (method === "DELETE") return { kind: "cancelUpload", ...at, id, action: "push" };
  return refuseMethod("GET, PATCH, PUT, DELETE");
}

function refuseMethod(allow: string): never {
  throw new OciError(405, "UNSUPPORTED", `this path serves ${allow}`, { allow });
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const shown = (text: string): string => JSON.stringify(text.slice(0, 100));

/** The range that a part of an upload names. null: it names none. Throws an OciError for another form. */
export function rangeOf(header: string | undefined): { readonly start: number; readonly end: number } | null {
  if (header === undefined) return null;
  const found = /^(?:bytes[ =])?(\d{1,15})-(\d{1,15})(?:\/(?:\d+|\*))?$/.exec(header.trim());
  const [start, end] = [Number(found?.[1]), Number(found?.[2])];
  if (found === null || start > end)
    throw new OciError(400, "BLOB_UPLOAD_INVALID", "Content-Range is not START-END, both inclusive");
  return { start, end };
}

export interface Scope {
  readonly repository: string;
  readonly actions: readonly Action[];
}

const SCOPES_MAX = 32;
const ACTIONS: Readonly<Record<string, readonly Action[]>> = {
  pull: ["pull"],
  push: ["push"],
  delete: ["delete"],
  "*": ["pull", "push", "delete"],
};

/** The scopes for which a token is asked, each repository once. What cannot exist is left out. */
export function scopesOf(query: URLSearchParams): readonly Scope[] {
  const found = new Map<string, Set<Action>>();
  for (const text of query.getAll("scope").flatMap((each) => each.split(" "))) {
    const [, repository = "", actions = ""] = /^repository(?:\([^)]*\))?:(.+):([a-z*,]*)$/.exec(text) ?? [];
    if (parseRepository(repository) === null) continue;
    const known = found.get(repository) ?? new Set();
    for (const action of actions.split(",").flatMap((each) => ACTIONS[each] ?? [])) known.add(action);
    if (found.has(repository) || found.size < SCOPES_MAX) found.set(repository, known);
  }
  return [...found].map(([repository, actions]) => ({ repository, actions: [...actions] }));
}

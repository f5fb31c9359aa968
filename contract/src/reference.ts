/**
 * Image references: what `alpine`, `127.0.0.1:5000/team/app:v2` or `local/busybox` name.
 *
 * They are read as container engines read them: no registry means docker.io, a single segment there means
 * `library/`, no tag means `latest`; a first segment is a registry only if it has a dot, a colon, or is
 * `localhost`. `local/…` is ours: an image made or imported on the node, which is never requested from a
 * registry.
 *
 * References of packages are read here too: a name without a registry is in the registry of Flotilla itself.
 *
 * Pure. Every error has a text for the user who typed the reference. A tag beside a digest is dropped,
 * because the digest alone determines what is fetched.
 */

export interface Reference {
  /** Canonical, such as `docker.io/library/alpine:latest`: equal for all spellings of the same image. */
  readonly name: string;
  /** `docker.io`, `127.0.0.1:5000`, …; `local` for images without a registry. */
  readonly registry: string;
  /** `library/alpine`. */
  readonly repository: string;
  /** A tag or `sha256:…`, as requested from the registry. */
  readonly target: string;
  readonly digest: string | null;
  readonly isLocal: boolean;
}

const REFERENCE_CHARACTERS_MAX = 512;
const NAME_CHARACTERS_MAX = 255;
const DIGEST = /^sha256:[0-9a-f]{64}$/;
const TAG = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$/;
const PATH_WORD = /^[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*$/;
const HOST =
  /^(?:\[[0-9a-fA-F:]+\]|(?:[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9-]*[A-Za-z0-9])(?:\.(?:[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9-]*[A-Za-z0-9]))*)(?::(\d{1,5}))?$/;
/** Other names of the same registry. */
const DOCKER_HUB_NAMES = new Set(["docker.io", "index.docker.io", "registry-1.docker.io"]);

export function isDigest(text: string): boolean {
  return DIGEST.test(text);
}

/** Throws an Error for users. */
export function parseReference(text: string): Reference {
  const refuse = (why: string): never => {
    throw new Error(`image reference ${shown(text)} is not valid: ${why}`);
  };
  if (text === "") refuse("it is empty");
  if (text.length > REFERENCE_CHARACTERS_MAX) refuse(`it is longer than ${REFERENCE_CHARACTERS_MAX} characters`);
  if (/\s/.test(text)) refuse("it contains white space");
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(text)) refuse("leave out the part up to ://");

  const [beforeDigest = "", digest = null, ...moreDigests] = text.split("@");
  if (digest !== null && (moreDigests.length > 0 || !DIGEST.test(digest)))
    refuse("after @ it needs sha256: and 64 hexadecimal digits in lower case");
  const { path, tag } = splitTag(beforeDigest);
  if (tag !== null && !TAG.test(tag)) refuse("a tag has up to 128 letters, digits, '_', '.', '-'");
  const { registry, repository } = splitRegistry(path);
  if (!HOST.test(registry) || Number(HOST.exec(registry)?.[1] ?? 0) > 65_535)
    refuse("the part before the first / is not a registry's host and port");
  if (repository.length > NAME_CHARACTERS_MAX) refuse(`its name is longer than ${NAME_CHARACTERS_MAX} characters`);
  if (repository === "" || !repository.split("/").every((word) => PATH_WORD.test(word)))
    refuse("a name has lower-case letters and digits, with '.', '_', '-' or '/' between them");
  const isLocal = registry === "local";
  if (isLocal && digest !== null) refuse("a local image has a name and a tag, no digest");
  const target = digest ?? tag ?? "latest";
  const name = `${registry}/${repository}${digest === null ? ":" : "@"}${target}`;
  return { name, registry, repository, target, digest, isLocal };
}

/** The host of Flotilla's own registry on the link: only a server knows where it is. */
export const OWN_REGISTRY = "flotilla.internal";

/** A package in Flotilla's own registry, or an image reference that names another one. */
export type PackageReference =
  | {
      readonly kind: "own";
      /** `tenants/<tenantId>/<name>` or `library/<name>`. */
      readonly repository: string;
      /** The digest, or else the tag. */
      readonly target: string;
      /** null: only a digest was given. */
      readonly tag: string | null;
      readonly digest: string | null;
    }
  | { readonly kind: "foreign"; readonly reference: Reference };

/**
 * Reads the reference of a package as the tenant means it: a bare name is one of the tenant's own
 * repositories. Whether the tenant may read it is not decided here. Throws an Error for users.
 */
export function parsePackageReference(text: string, tenantId: string): PackageReference {
  const refuse = (why: string): never => {
    throw new Error(`package reference ${shown(text)} is not valid: ${why}`);
  };
  const own = text.startsWith(`${OWN_REGISTRY}/`) ? text.slice(OWN_REGISTRY.length + 1) : text;
  const first = own.slice(0, Math.max(0, own.indexOf("/")));
  const isForeign = /[.:[]/.test(first) || first === "localhost" || first === "local";
  if (isForeign && own === text) return { kind: "foreign", reference: parseReference(text) };
  if (own === "") refuse("it is empty");
  if (own.length > REFERENCE_CHARACTERS_MAX) refuse(`it is longer than ${REFERENCE_CHARACTERS_MAX} characters`);
  const [beforeDigest = "", digest = null, ...moreDigests] = own.split("@");
  if (digest !== null && (moreDigests.length > 0 || !DIGEST.test(digest)))
    refuse("after @ it needs sha256: and 64 hexadecimal digits in lower case");
  const { path, tag } = splitTag(beforeDigest);
  if (tag !== null && !TAG.test(tag)) refuse("a tag has up to 128 letters, digits, '_', '.', '-'");
  const isWhole = own !== text || first === "library" || first === "tenants";
  const repository = isWhole ? path : `tenants/${tenantId}/${path}`;
  if (parseRepository(repository) === null)
    refuse(
      isWhole
        ? "it names no repository; write tenants/TENANT/NAME or library/NAME"
        : "a name has lower-case letters and digits, with '.', '_', '-' or '/' between them",
    );
  const target = digest ?? tag ?? "latest";
  return { kind: "own", repository, target, tag: tag ?? (digest === null ? "latest" : null), digest };
}

/** Whose a repository of Flotilla's own registry is; `tenantId` null: it is one of the library. */
export interface RepositoryName {
  readonly tenantId: string | null;
  /** Without the tenant: `web`. */
  readonly name: string;
}

/** null: Flotilla's own registry has no repository of such a name. */
export function parseRepository(repository: string): RepositoryName | null {
  if (repository.length > NAME_CHARACTERS_MAX) return null;
  const parts = repository.split("/");
  if (!parts.every((word) => PATH_WORD.test(word))) return null;
  if (parts[0] === "library" && parts.length > 1) return { tenantId: null, name: parts.slice(1).join("/") };
  if (parts[0] !== "tenants" || parts.length < 3) return null;
  return { tenantId: parts[1] ?? "", name: parts.slice(2).join("/") };
}

export function isTag(text: string): boolean {
  return TAG.test(text);
}

/**
 * The canonical name, for comparing stored references; text that is not a reference is returned unchanged.
 */
export function canonicalReference(text: string): string {
  try {
    return parseReference(text).name;
  } catch {
    return text;
  }
}

/** The last colon starts a tag unless a slash follows it: then it belongs to the registry's port. */
function splitTag(text: string): { readonly path: string; readonly tag: string | null } {
  const colon = text.lastIndexOf(":");
  if (colon < 0 || text.indexOf("/", colon) >= 0) return { path: text, tag: null };
  return { path: text.slice(0, colon), tag: text.slice(colon + 1) };
}

function splitRegistry(path: string): { readonly registry: string; readonly repository: string } {
  const slash = path.indexOf("/");
  const first = slash < 0 ? "" : path.slice(0, slash);
  if (first === "local") return { registry: "local", repository: path.slice(slash + 1) };
  const isHost = /[.:[]/.test(first) || first === "localhost";
  const registry = isHost ? first.toLowerCase() : "docker.io";
  const repository = isHost ? path.slice(slash + 1) : path;
  if (!DOCKER_HUB_NAMES.has(registry)) return { registry, repository };
  return { registry: "docker.io", repository: repository.includes("/") ? repository : `library/${repository}` };
}

/** A caller's text inside an error: short, without control characters, and without a password before `@`. */
function shown(text: string): string {
  const open = text.replace(/:[^@]*@(?!sha256:)/, ":…@");
  return JSON.stringify(open.length > 80 ? `${open.slice(0, 80)}…` : open);
}

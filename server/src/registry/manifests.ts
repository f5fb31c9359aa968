/**
 * Manifests and tags, as clients of registries read and write them.
 *
 * Always:
 * - The backend has a manifest before its rows say so, each under a separate tag there, so that another
 *   registry never takes it for unused.
 * - A manifest is accepted only if the repository has all that it names, by its rows and by the backend.
 * - What is sent to a reader has the digest that it was asked by.
 *
 * A crash between the backend and the rows leaves a manifest that no row names: it keeps its blobs until it
 * is put again, or the repository's disk is cleaned by hand.
 */
import { hash } from "node:crypto";
import { Readable } from "node:stream";
import { ownMessageOf } from "@flotilla/base/errors";
import { isTag } from "@flotilla/contract/reference";
import type { Outgoing } from "../http/answer.ts";
import { joined, readBody } from "../http/body.ts";
import { BackendUnavailable, discard, readAll, refusalOfBackend } from "./backend.ts";
import type { Permitted, RegistryParts } from "./exchange.ts";
import { MANIFEST_BYTES_MAX, MANIFEST_TYPES, type ReadManifest, readManifest } from "./manifest.ts";
import { denied, manifestUnknown, nameUnknown, OciError, unavailable } from "./oci-error.ts";
import type { Target } from "./paths.ts";
import { MANIFESTS_MAX } from "./registry.ts";
import {
  beginPut,
  countManifests,
  findUnknown,
  listBlobSizes,
  listTagNames,
  type ManifestRow,
  putManifest as writeManifest,
} from "./store.ts";

type Parts = Pick<RegistryParts, "admission" | "context" | "registry">;

const TAGS_MAX = 1_000;

const targetText = (target: Target): string => ("tag" in target ? target.tag : target.digest);

/** The tag under which the backend has the manifest. */
const backendTag = (digest: string): string => digest.replace(":", "-");

export async function readManifestOf(
  { registry }: Parts,
  { request, repository, signal }: Permitted,
  target: Target,
): Promise<Outgoing> {
  const row = await registry.findRow({ repository, target: targetText(target) });
  if (row === undefined) throw manifestUnknown(repository, targetText(target));
  const headers = {
    "content-type": row.mediaType,
    "docker-content-digest": row.digest,
    etag: `"${row.digest}"`,
  };
  if (request.message.method === "HEAD")
    return { status: 200, headers: { ...headers, "content-length": String(row.ownBytes) }, body: Readable.from([]) };
  return { status: 200, headers, body: await fetchManifest(registry, row, signal) };
}

async function fetchManifest(
  { backend }: Parts["registry"],
  { repository, digest }: ManifestRow,
  signal: AbortSignal,
): Promise<Buffer> {
  const answer = await backend.send({
    ...{ method: "GET", url: backend.urlOf(repository, `manifests/${digest}`), repository, isWrite: false, signal },
    headers: { accept: MANIFEST_TYPES.join(", ") },
  });
  if (answer.status === 404) {
    await discard(answer);
    throw manifestUnknown(repository, digest);
  }
  if (answer.status !== 200) throw await refusalOfBackend(answer);
  const bytes = await readAll(answer, MANIFEST_BYTES_MAX);
  if (`sha256:${hash("sha256", bytes, "hex")}` !== digest)
    throw new BackendUnavailable(new Error(`it has another manifest for ${digest}`));
  return bytes;
}

export async function putManifestOf(parts: Parts, permitted: Permitted, target: Target): Promise<Outgoing> {
  const { registry, context } = parts;
  const { repository, tenantId, caller } = permitted;
  const bytes = await bodyOf(parts, permitted);
  const manifest = parsed(bytes, permitted.request.message.headers["content-type"]);
  const { digest } = manifest;
  if ("digest" in target && target.digest !== digest)
    throw new OciError(400, "DIGEST_INVALID", `the manifest has the digest ${digest}, not ${target.digest}`);
  await requireKnown(parts, repository, manifest);
  const room = await registry.roomFor(tenantId, bytes.length);
  if (tenantId !== null && (await countManifests(context.db, tenantId)) >= MANIFESTS_MAX)
    throw denied(
      `the tenant has ${MANIFESTS_MAX} manifests, which is the maximum; delete packages that are not needed`,
    );
  context.log.debug({ repository, digest, room }, "a manifest is put");
  const at = { repository, digest, now: context.clock.now() };
  if (!(await beginPut(context.db, at))) throw unavailable(`${digest} is being deleted; push it again in a moment`, 2);
  await sendManifest(parts, permitted, { ...manifest, bytes });
  const tag = "tag" in target ? target.tag : null;
  const put = { ...manifest, repository, tenantId, ownBytes: bytes.length, tag, now: context.clock.now() };
  await writeManifest(context.db, put);
  if (tag !== null && "key" in caller)
    await registry.releaseAfterPush({ holder: caller.holder, repository }, caller.scopes !== null);
  const location = `/v2/${repository}/manifests/${digest}`;
  return { status: 201, headers: { location, "docker-content-digest": digest }, body: "" };
}

async function bodyOf({ admission }: Parts, { request, caller, tenantId }: Permitted): Promise<Buffer> {
  const holder = "key" in caller ? { tenantId: caller.key.tenantId } : { nodeId: caller.nodeId ?? tenantId };
  const share = admission.shareOf(holder);
  request.share = share;
  const reading = { maxBytes: MANIFEST_BYTES_MAX, share, watch: admission.bodies };
  return joined(await readBody(request.message, reading));
}

function parsed(bytes: Buffer, contentType: string | undefined): ReadManifest {
  try {
    return readManifest(bytes, contentType);
  } catch (error) {
    throw new OciError(400, "MANIFEST_INVALID", `the manifest is not accepted: ${ownMessageOf(error)}`);
  }
}

/** Throws an OciError unless the repository has what the manifest names, in the size that it names. */
async function requireKnown({ context: { db } }: Parts, repository: string, manifest: ReadManifest): Promise<void> {
  const unknown = await findUnknown(db, { ...manifest, repository });
  if (unknown.length > 0)
    throw new OciError(
      404,
      "MANIFEST_BLOB_UNKNOWN",
      `${repository} lacks ${unknown.join(", ")}, which the manifest names; push that first`,
    );
  const digests = manifest.blobs.map(({ digest }) => digest);
  const sizes = new Map((await listBlobSizes(db, { repository, digests })).map((blob) => [blob.digest, blob.bytes]));
  const wrong = manifest.blobs.find(({ digest, bytes }) => sizes.get(digest) !== bytes);
  if (wrong !== undefined)
    throw new OciError(
      400,
      "MANIFEST_INVALID",
      `the manifest says that ${wrong.digest} has ${wrong.bytes} bytes, and it has ${sizes.get(wrong.digest)}`,
    );
}

async function sendManifest(
  { registry }: Parts,
  { repository, signal }: Permitted,
  { digest, mediaType, bytes }: ReadManifest & { readonly bytes: Buffer },
): Promise<void> {
  const { backend } = registry;
  const answer = await backend.send({
    ...{ method: "PUT", url: backend.urlOf(repository, `manifests/${backendTag(digest)}`), repository, isWrite: true },
    ...{ headers: { "content-type": mediaType, "content-length": String(bytes.length) }, body: bytes, signal },
  });
  if (answer.status !== 201 && answer.status !== 202) throw await refusalOfBackend(answer);
  await discard(answer);
}

export async function deleteManifestOf(
  { registry }: Parts,
  { repository }: Permitted,
  target: Target,
): Promise<Outgoing> {
  const isDeleted =
    "tag" in target
      ? await registry.removeTag(repository, target.tag)
      : await registry.removeManifest(repository, target.digest);
  if (!isDeleted) throw manifestUnknown(repository, targetText(target));
  return { status: 202, headers: {}, body: "" };
}

export async function listTagsOf(
  { context }: Parts,
  { repository }: Permitted,
  query: URLSearchParams,
): Promise<Outgoing> {
  const n = query.get("n");
  if (n !== null && !/^\d{1,6}$/.test(n)) throw new OciError(400, "UNSUPPORTED", "n is not a number of tags");
  const max = Math.min(TAGS_MAX, n === null ? TAGS_MAX : Number(n));
  const last = query.get("last") ?? "";
  const found = await listTagNames(context.db, { repository, last: isTag(last) ? last : "", max: max + 1 });
  if (found === undefined) throw nameUnknown(repository);
  const tags = found.slice(0, max);
  const next = tags.at(-1);
  const link = `</v2/${repository}/tags/list?n=${max}&last=${next}>; rel="next"`;
  const headers = { "content-type": "application/json", ...(found.length > max && next !== undefined ? { link } : {}) };
  return { status: 200, headers, body: JSON.stringify({ name: repository, tags }) };
}

/**
 * Blobs, as clients of registries read and upload them.
 *
 * Always:
 * - Bytes stream in both directions, and nothing is held but what is on its way.
 * - A part of an upload ends in the backend in order even if its caller goes away in the middle, so that the
 *   rest can follow; the offset that is answered is the backend's.
 * - A blob can be read only through a repository whose rows have it.
 *
 * A crash leaves the row of the upload; where the backend has more of it than the row says, the upload is
 * begun again.
 */
import { Readable } from "node:stream";
import { isDigest } from "@flotilla/contract/reference";
import { STREAM_SILENCE_MS_MAX } from "../fairness/bounds.ts";
import type { Outgoing } from "../http/answer.ts";
import { CallerGone, hasBody } from "../http/body.ts";
import { type BackendAnswer, discard, located, refusalOfBackend } from "./backend.ts";
import type { Permitted, RegistryParts } from "./exchange.ts";
import { mayRead } from "./identify.ts";
import { blobUnknown, denied, OciError, uploadUnknown } from "./oci-error.ts";
import { rangeOf } from "./paths.ts";
import { findBlob, forgetLooseBlob, keepLooseBlob } from "./store.ts";
import { completeUpload, deleteUpload, findUpload, growUpload, insertUpload, type UploadRow } from "./upload-store.ts";

type Parts = Pick<RegistryParts, "admission" | "context" | "registry" | "turns">;

/** Uploads of a tenant that have begun and not ended. */
const UPLOADS_MAX = 1_000;
const PASSED = ["accept-ranges", "content-length", "content-range"] as const;

const DOCKER_DIGEST = "docker-content-digest";

export async function readBlobOf(
  { registry, context }: Parts,
  { request, repository, signal }: Permitted,
  digest: string,
): Promise<Outgoing> {
  if ((await findBlob(context.db, { repository, digest })) === undefined) throw blobUnknown(repository, digest);
  const { backend } = registry;
  const isHead = request.message.method === "HEAD";
  const { range } = request.message.headers;
  const answer = await backend.send({
    ...{ method: isHead ? "HEAD" : "GET", url: backend.urlOf(repository, `blobs/${digest}`), repository },
    ...{ isWrite: false, headers: range === undefined ? {} : { range }, signal },
  });
  if (answer.status === 404) {
    await discard(answer);
    await forgetLooseBlob(context.db, { repository, digest });
    throw blobUnknown(repository, digest);
  }
  if (answer.status === 416) {
    await discard(answer);
    throw new OciError(416, "SIZE_INVALID", `the range is outside ${digest}`);
  }
  if (answer.status !== 200 && answer.status !== 206) throw await refusalOfBackend(answer);
  const headers: Record<string, string> = { "content-type": "application/octet-stream", [DOCKER_DIGEST]: digest };
  for (const name of PASSED) if (answer.headers[name] !== undefined) headers[name] = answer.headers[name];
  if (isHead) await discard(answer);
  return { status: answer.status, headers, body: isHead ? Readable.from([]) : answer.body };
}

/** Begins an upload, or takes the blob from another repository. */
export async function beginUploadOf(parts: Parts, permitted: Permitted, query: URLSearchParams): Promise<Outgoing> {
  const { registry, context } = parts;
  const { repository, tenantId, signal } = permitted;
  const mounted = await mount(parts, permitted, query);
  if (mounted !== null) return mounted;
  await registry.roomFor(tenantId, null);
  const { backend } = registry;
  const asked = {
    ...({ method: "POST", url: backend.urlOf(repository, "blobs/uploads/"), repository, isWrite: true } as const),
    ...{ headers: { "content-length": "0" }, signal },
  };
  const answer = await backend.send(asked);
  if (answer.status !== 202) throw await refusalOfBackend(answer);
  await discard(answer);
  const location = located(answer, asked).href;
  const upload = { id: context.randomBytes(16).toString("hex"), repository, tenantId, location, bytes: 0 };
  if (!(await insertUpload(context.db, { ...upload, now: context.clock.now(), max: UPLOADS_MAX }))) {
    await cancelIn(parts, upload);
    const text = `${UPLOADS_MAX} uploads of the tenant have begun; end some of them`;
    throw new OciError(429, "TOOMANYREQUESTS", text, { "retry-after": "60" });
  }
  return accepted(upload, 202);
}

/** null: it is not asked for, or not possible; the caller uploads the blob then. */
async function mount(parts: Parts, permitted: Permitted, query: URLSearchParams): Promise<Outgoing | null> {
  const { registry, context } = parts;
  const { repository, tenantId, caller, signal } = permitted;
  const [digest, from] = [query.get("mount") ?? "", query.get("from") ?? ""];
  if (!isDigest(digest) || from === "" || from === repository) return null;
  if (!(await mayRead(parts, caller, { from, into: repository }))) return null;
  const bytes = await findBlob(context.db, { repository: from, digest });
  if (bytes === undefined) return null;
  await registry.roomFor(tenantId, bytes);
  const { backend } = registry;
  const asked = {
    ...({ method: "POST", url: backend.mountUrl(repository, { digest, from }), repository, isWrite: true } as const),
    ...{ headers: { "content-length": "0" }, from, signal },
  };
  const answer = await backend.send(asked);
  await discard(answer);
  if (answer.status !== 201) {
    // An upload has begun instead.
    if (answer.status === 202) await cancelAt(parts, repository, located(answer, asked));
    return null;
  }
  await keepLooseBlob(context.db, { repository, digest, tenantId, bytes, now: context.clock.now() });
  return created(repository, digest);
}

const created = (repository: string, digest: string): Outgoing => ({
  status: 201,
  headers: { location: `/v2/${repository}/blobs/${digest}`, [DOCKER_DIGEST]: digest },
  body: "",
});

/** How far the upload is, and where it continues. */
function accepted(upload: Pick<UploadRow, "id" | "repository" | "bytes">, status: 202 | 204): Outgoing {
  return { status, headers: progressOf(upload), body: "" };
}

const progressOf = ({ id, repository, bytes }: Pick<UploadRow, "id" | "repository" | "bytes">) => ({
  location: `/v2/${repository}/blobs/uploads/${id}`,
  range: `0-${Math.max(0, bytes - 1)}`,
  "docker-upload-uuid": id,
});

async function requireUpload({ context }: Parts, { repository }: Permitted, id: string): Promise<UploadRow> {
  const upload = await findUpload(context.db, { id, repository });
  if (upload === undefined) throw uploadUnknown();
  return upload;
}

export const appendUploadOf = (parts: Parts, permitted: Permitted, id: string): Promise<Outgoing> =>
  parts.turns.take(id, async () => {
    const upload = await requireUpload(parts, permitted, id);
    return accepted(await append(parts, permitted, upload), 202);
  });

/** Sends the body of the request as the next part. Resolves with the upload as it is then. */
async function append(parts: Parts, permitted: Permitted, upload: UploadRow): Promise<UploadRow> {
  const { registry, context, admission } = parts;
  const { message } = permitted.request;
  const declared = declaredLength(message.headers["content-length"]);
  const range = rangeOf(message.headers["content-range"]);
  if (range !== null && range.start !== upload.bytes) {
    const text = `the upload is at ${upload.bytes}, and the part begins at ${range.start}; continue from the offset`;
    throw new OciError(416, "BLOB_UPLOAD_INVALID", text, progressOf(upload));
  }
  if (range !== null && declared !== null && range.end - range.start + 1 !== declared)
    throw new OciError(400, "SIZE_INVALID", "Content-Range and Content-Length do not name the same number of bytes");
  const bytesMax = await registry.roomFor(upload.tenantId, declared ?? 1);
  admission.bodies.streamed(message, STREAM_SILENCE_MS_MAX);
  const part = { bytes: 0, isCut: false, isOver: false };
  const { backend } = registry;
  const asked = {
    ...({ method: "PATCH", url: new URL(upload.location), repository: upload.repository, isWrite: true } as const),
    headers: { "content-type": "application/octet-stream" },
    body: piecesOf(permitted, part, bytesMax),
  };
  const answer = await backend.send(asked);
  if (answer.status !== 202 && answer.status !== 204) throw await lostOr(parts, upload, answer);
  await discard(answer);
  const bytes = upload.bytes + part.bytes;
  const grown = { ...upload, location: located(answer, asked).href, bytes };
  await growUpload(context.db, { ...grown, now: context.clock.now() });
  if (part.isOver) {
    await cancelIn(parts, grown);
    await deleteUpload(context.db, upload.id);
    // Says why, with the figures.
    await registry.roomFor(upload.tenantId, bytesMax + 1);
    throw denied("the upload is larger than what may be stored");
  }
  if (part.isCut) throw new CallerGone();
  return grown;
}

/**
 * The body. It ends in order when the caller goes away or loses its right, or sends more than may be stored.
 */
async function* piecesOf(
  { request: { message, presence }, signal }: Permitted,
  part: { bytes: number; isCut: boolean; isOver: boolean },
  bytesMax: number,
): AsyncGenerator<Buffer> {
  try {
    // Destroyed with its iterator, the request could not be answered.
    for await (const piece of message.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
      part.isOver = part.bytes + piece.length > bytesMax;
      part.isCut = signal.aborted || presence.lost !== undefined;
      if (part.isOver || part.isCut) return;
      part.bytes += piece.length;
      yield piece;
    }
    part.isCut = !message.complete;
  } catch {
    part.isCut = true;
  } finally {
    // What still comes is discarded, so that the caller gets to the answer.
    message.resume();
  }
}

function declaredLength(header: string | undefined): number | null {
  return header !== undefined && /^\d{1,15}$/.test(header) ? Number(header) : null;
}

/**
 * The refusal for a part. The upload has ended when the backend does not know it any more, or not as it is.
 */
async function lostOr(parts: Parts, upload: UploadRow, answer: BackendAnswer): Promise<OciError> {
  const refused = await refusalOfBackend(answer);
  if (refused.status < 400 || refused.status >= 500 || refused.status === 429) return refused;
  await cancelIn(parts, upload);
  await deleteUpload(parts.context.db, upload.id);
  return refused.code === "DIGEST_INVALID" || refused.code === "SIZE_INVALID" ? refused : uploadUnknown();
}

/** The last part, if it has a body, and the digest of the whole. */
export const endUploadOf = (
  parts: Parts,
  permitted: Permitted,
  { id, query }: { readonly id: string; readonly query: URLSearchParams },
): Promise<Outgoing> =>
  parts.turns.take(id, async () => {
    const { registry, context } = parts;
    const { repository, tenantId } = permitted;
    const digest = query.get("digest") ?? "";
    if (!isDigest(digest))
      throw new OciError(400, "DIGEST_INVALID", "the parameter digest is not sha256: and 64 hexadecimal digits");
    const begun = await requireUpload(parts, permitted, id);
    const upload = hasBody(permitted.request.message) ? await append(parts, permitted, begun) : begun;
    const url = new URL(upload.location);
    url.searchParams.set("digest", digest);
    const answer = await registry.backend.send({
      ...{ method: "PUT", url, repository, isWrite: true, headers: { "content-length": "0" } },
    });
    if (answer.status !== 201) throw await lostOr(parts, upload, answer);
    await discard(answer);
    const { bytes } = upload;
    await completeUpload(context.db, id, { repository, digest, tenantId, bytes, now: context.clock.now() });
    return created(repository, digest);
  });

/** Asks the backend: it may have lost the upload. */
export const readUploadOf = (parts: Parts, permitted: Permitted, id: string): Promise<Outgoing> =>
  parts.turns.take(id, async () => {
    const { registry } = parts;
    const upload = await requireUpload(parts, permitted, id);
    const answer = await registry.backend.send({
      ...{ method: "GET", url: new URL(upload.location), repository: upload.repository, isWrite: true },
    });
    if (answer.status !== 204 && answer.status !== 202 && answer.status !== 200)
      throw await lostOr(parts, upload, answer);
    await discard(answer);
    return accepted(upload, 204);
  });

export const cancelUploadOf = (parts: Parts, permitted: Permitted, id: string): Promise<Outgoing> =>
  parts.turns.take(id, async () => {
    const upload = await requireUpload(parts, permitted, id);
    await cancelIn(parts, upload);
    await deleteUpload(parts.context.db, id);
    return { status: 204, headers: {}, body: "" };
  });

const cancelIn = (
  parts: Pick<Parts, "registry">,
  { repository, location }: Pick<UploadRow, "repository" | "location">,
) => cancelAt(parts, repository, new URL(location));

/** Ends an upload in the backend, if it has it. */
export async function cancelAt(
  { registry: { backend } }: Pick<Parts, "registry">,
  repository: string,
  url: URL,
): Promise<void> {
  const answer = await backend.send({ method: "DELETE", url, repository, isWrite: true });
  await discard(answer);
}

/**
 * The registry under `/v2/` of the server, as this program uses it: manifests and blobs, with the caller's
 * key.
 *
 * Always:
 * - What is received has the digest that was asked for, or nothing of it is kept.
 * - Bytes of blobs are streamed, never held in memory.
 */
import { createHash } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { rename, rm, stat } from "node:fs/promises";
import { Readable, Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { Connection } from "../connection.ts";
import { Failure, usage } from "../failure.ts";
import { nodeFetch } from "../node-fetch.ts";

const MANIFEST_TYPES = [
  "application/vnd.oci.image.manifest.v1+json",
  "application/vnd.oci.image.index.v1+json",
  "application/vnd.docker.distribution.manifest.v2+json",
  "application/vnd.docker.distribution.manifest.list.v2+json",
];
const MANIFEST_BYTES_MAX = 4 * 1024 * 1024;
const ERROR_CHARACTERS_MAX = 4_096;

export interface PackageName {
  readonly repository: string;
  /** A tag or a digest. */
  readonly target: string;
}

export interface Descriptor {
  readonly mediaType: string;
  readonly digest: string;
  readonly size: number;
}

export interface Manifest {
  readonly bytes: Buffer;
  readonly mediaType: string;
  readonly digest: string;
}

/** `web:1` → its repository and tag. `namespace`: where names without `tenants/` or `library/` are. Pure. */
export function packageName(text: string, namespace: string): PackageName {
  const at = text.indexOf("@");
  const name = at === -1 ? text : text.slice(0, at);
  const colon = name.lastIndexOf(":");
  const path = colon === -1 ? name : name.slice(0, colon);
  const target = at === -1 ? (colon === -1 ? "latest" : name.slice(colon + 1)) : text.slice(at + 1);
  if (!/^[a-z0-9]+(?:[._/-]+[a-z0-9]+)*$/.test(path) || !/^[\w][\w.:-]{0,127}$/.test(target))
    throw usage(`"${text}" is not the reference of a package`, "such as web, web:1 or web@sha256:…");
  const isWhole = path.startsWith("tenants/") || path.startsWith("library/");
  return { repository: isWhole ? path : `${namespace}/${path}`, target };
}

export const sha256 = (bytes: Uint8Array): string => `sha256:${createHash("sha256").update(bytes).digest("hex")}`;

export class RegistryClient {
  readonly #connection: Connection;
  readonly #signal: AbortSignal;

  constructor(connection: Connection, signal: AbortSignal) {
    this.#connection = connection;
    this.#signal = signal;
  }

  /** Throws a Failure when there is none. */
  async manifest({ repository, target }: PackageName): Promise<Manifest> {
    const path = `/v2/${repository}/manifests/${target}`;
    const answer = await this.#call("GET", path, { headers: { accept: MANIFEST_TYPES.join(", ") } });
    const bytes = Buffer.from(await answer.arrayBuffer());
    if (bytes.byteLength > MANIFEST_BYTES_MAX) throw new Failure(`the manifest of ${repository} is too large`);
    const digest = sha256(bytes);
    if (target.startsWith("sha256:") && digest !== target)
      throw new Failure(`the registry sent ${digest} instead of ${target}`, "the connection, or a proxy, changed it");
    return { bytes, digest, mediaType: answer.headers.get("content-type") ?? "" };
  }

  async putManifest(
    { repository, target }: PackageName,
    { bytes, mediaType }: Omit<Manifest, "digest">,
  ): Promise<void> {
    await this.#call("PUT", `/v2/${repository}/manifests/${target}`, {
      headers: { "content-type": mediaType },
      body: new Uint8Array(bytes),
    });
  }

  /** The bytes of a small blob. */
  async blob(repository: string, { digest, size }: Descriptor): Promise<Buffer> {
    if (size > MANIFEST_BYTES_MAX) throw new Failure(`${digest} is too large`);
    const answer = await this.#call("GET", `/v2/${repository}/blobs/${digest}`);
    const bytes = Buffer.from(await answer.arrayBuffer());
    if (sha256(bytes) !== digest) throw wrongBytes(digest);
    return bytes;
  }

  /** Writes a blob to the file, which is complete or not there. */
  async download(repository: string, { digest, size }: Descriptor, file: string): Promise<void> {
    const partial = `${file}.partial`;
    try {
      const answer = await this.#call("GET", `/v2/${repository}/blobs/${digest}`);
      if (answer.body === null) throw wrongBytes(digest);
      const sum = createHash("sha256");
      let received = 0;
      const counted = new Transform({
        transform(chunk: Buffer, _, done) {
          received += chunk.byteLength;
          sum.update(chunk);
          done(received > size ? wrongBytes(digest) : null, chunk);
        },
      });
      const body = Readable.fromWeb(answer.body);
      await pipeline(body, counted, createWriteStream(partial), { signal: this.#signal });
      if (`sha256:${sum.digest("hex")}` !== digest) throw wrongBytes(digest);
      await rename(partial, file);
    } finally {
      await rm(partial, { force: true });
    }
  }

  /** Whether the repository has the blob. */
  async has(repository: string, digest: string): Promise<boolean> {
    const answer = await this.#send("HEAD", `/v2/${repository}/blobs/${digest}`);
    if (answer.status === 404) return false;
    await this.#checked(answer, repository);
    return true;
  }

  async upload(repository: string, { digest }: Descriptor, file: string): Promise<void> {
    const { size } = await stat(file);
    const begun = await this.#call("POST", `/v2/${repository}/blobs/uploads/`);
    const location = new URL(begun.headers.get("location") ?? "", this.#connection.url);
    // The key is only sent to the server that it is for.
    if (location.origin !== new URL(this.#connection.url).origin) location.host = new URL(this.#connection.url).host;
    location.searchParams.set("digest", digest);
    const headers = { "content-type": "application/octet-stream", "content-length": String(size) };
    const body = Readable.toWeb(createReadStream(file)) as ReadableStream<Uint8Array>;
    await this.#call("PUT", `${location.pathname}${location.search}`, { headers, body });
  }

  async #call(method: string, path: string, init: Pick<RequestInit, "headers" | "body"> = {}): Promise<Response> {
    return await this.#checked(await this.#send(method, path, init), path);
  }

  #send(
    method: string,
    path: string,
    { headers, body }: Pick<RequestInit, "headers" | "body"> = {},
  ): Promise<Response> {
    const { url, key } = this.#connection;
    const authorization = key === null ? {} : { authorization: `Bearer ${key}` };
    return nodeFetch(new URL(path, url).href, {
      method,
      headers: { ...(headers as Record<string, string> | undefined), ...authorization },
      ...(body === undefined ? {} : { body }),
      signal: this.#signal,
    });
  }

  async #checked(answer: Response, what: string): Promise<Response> {
    if (answer.status >= 200 && answer.status < 300) return answer;
    const text = (await answer.text()).slice(0, ERROR_CHARACTERS_MAX);
    throw new Failure(`the registry refused ${what}: ${messageOf(text) || `status ${answer.status}`}`);
  }
}

const wrongBytes = (digest: string): Failure =>
  new Failure(`the registry sent other bytes than those of ${digest}`, "try again");

/** The message of an error of the registry. */
function messageOf(text: string): string {
  try {
    const { errors } = JSON.parse(text) as { errors?: readonly { code?: string; message?: string }[] };
    return (errors ?? []).map(({ code = "", message = "" }) => `${message} (${code})`).join("; ");
  } catch {
    return text;
  }
}

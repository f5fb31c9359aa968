/**
 * Pushes blobs and a manifest to the fleet's registry: the writing half of the distribution protocol.
 *
 * Always:
 * - An upload that was interrupted continues at the byte that the registry names: what was sent may have
 *   arrived in part.
 * - A blob that the registry has is not sent. A registry may lose it before the manifest names it: then the
 *   caller sends it once more (UnknownBlobs).
 * - Every wait is bounded: a silent call ends, and after TRIES_MAX attempts without a byte of progress the
 *   push has failed.
 *
 * An interruption leaves half an upload in the registry, which it removes by itself.
 */
import { createReadStream } from "node:fs";
import type { IncomingMessage } from "node:http";
import { Readable } from "node:stream";
import { orAborted } from "@flotilla/base/abort";
import type { Clock, Timer } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { CallServer, ServerCall } from "../images/own-registry.ts";
import {
  locationIn,
  type Meaning,
  meaningOf,
  offsetIn,
  PushRefused,
  type RegistryAnswer,
  UnknownBlobs,
} from "./registry-answer.ts";

export interface PushOptions {
  readonly callServer: CallServer;
  /** `tenants/…` or `library/…`. */
  readonly repository: string;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  /** A call that is silent for this long has failed; default 60 s. */
  readonly silenceMs?: number;
  /** Before the first repetition; doubles with each. Default 500 ms. */
  readonly retryDelayMs?: number;
}

export interface PushedBlob {
  readonly digest: string;
  readonly size: number;
  /** The file with its content. */
  readonly path: string;
}

interface Upload {
  /** Its path and query. */
  readonly location: string;
  /** The bytes that the registry has. */
  readonly offset: number;
}

interface Answered extends RegistryAnswer {
  readonly location: string | null;
  readonly range: string | null;
}

const TRIES_MAX = 6;
/** Against a registry that loses a little with each attempt. */
const UPLOADS_MAX = 40;
const RETRY_DELAY_MS_MAX = 10_000;
/** A cut costs at most this much of a layer in registries that keep no part of a request. */
const PART_BYTES = 16 * 2 ** 20;
const READ_BYTES = 256 * 1024;
const BODY_BYTES_MAX = 64 * 1024;
/** Registries hash the whole blob when an upload ends. */
const HASHED_BYTES_PER_MS = 50_000;

/** The registry did not do what a repetition may achieve. */
class Unfinished extends Error {
  readonly meaning: Exclude<Meaning, { kind: "refused" | "unknown-blobs" }>;

  constructor(meaning: Unfinished["meaning"], message: string) {
    super(message);
    this.meaning = meaning;
  }
}

export class Pusher {
  readonly #options: PushOptions;
  readonly #base: string;

  constructor(options: PushOptions) {
    this.#options = options;
    this.#base = `/v2/${options.repository}`;
  }

  /** Resolves with whether it was sent: the registry may have it. Rejects with PushRefused or an Error. */
  async blob(blob: PushedBlob, { isSent = false }: { readonly isSent?: boolean } = {}): Promise<boolean> {
    if (!isSent && (await this.#repeated(() => this.#has(blob)))) return false;
    await this.#upload(blob);
    return true;
  }

  /** `target`: a tag, or the digest. Rejects with UnknownBlobs, PushRefused or an Error. */
  async manifest(bytes: Buffer, mediaType: string, target: string): Promise<void> {
    const path = `${this.#base}/manifests/${target}`;
    const headers = { "content-type": mediaType, "content-length": String(bytes.byteLength) };
    await this.#repeated(async () => {
      const answer = await this.#call({ method: "PUT", path, headers, body: bytes });
      if (answer.status !== 201) throw this.#failure(answer, { isManifest: true });
    });
  }

  async #has({ digest }: PushedBlob): Promise<boolean> {
    const answer = await this.#call({ method: "HEAD", path: `${this.#base}/blobs/${digest}`, headers: {} });
    if (answer.status === 200) return true;
    if (answer.status === 404) return false;
    throw this.#failure(answer, { isManifest: false });
  }

  async #upload(blob: PushedBlob): Promise<void> {
    let upload: Upload | null = null;
    let [tries, reached] = [0, 0];
    for (let uploads = 0; ; ) {
      try {
        if (upload === null) {
          uploads += 1;
          upload = await this.#begin();
        }
        while (upload.offset < blob.size) upload = await this.#part(upload, blob);
        return await this.#commit(upload, blob);
      } catch (error) {
        const known = await this.#afterFailure(error, upload, blob);
        if (known === "done") return;
        const offset: number = known?.offset ?? 0;
        tries = offset > reached ? 0 : tries + 1;
        reached = Math.max(reached, offset);
        if (tries >= TRIES_MAX || uploads >= UPLOADS_MAX) throw error;
        upload = known;
        await this.#pause(error, tries);
      }
    }
  }

  /** What the registry has after a failure: the upload at its byte, the blob, or nothing (null). */
  async #afterFailure(error: unknown, upload: Upload | null, blob: PushedBlob): Promise<Upload | "done" | null> {
    this.#options.signal.throwIfAborted();
    if (error instanceof PushRefused) throw error;
    const kind = error instanceof Unfinished ? error.meaning.kind : "offset";
    if (upload === null || kind === "begin") {
      // The answer to the last request of an upload may have been lost.
      const has = upload !== null && (await this.#has(blob).catch(() => false));
      return has ? "done" : null;
    }
    try {
      return await this.#ask(upload);
    } catch (failure) {
      this.#options.signal.throwIfAborted();
      if (failure instanceof PushRefused) throw failure;
      const isGone = failure instanceof Unfinished && failure.meaning.kind === "begin";
      if (!isGone) return upload;
      return (await this.#has(blob).catch(() => false)) ? "done" : null;
    }
  }

  async #begin(): Promise<Upload> {
    const path = `${this.#base}/blobs/uploads/`;
    const answer = await this.#call({ method: "POST", path, headers: { "content-length": "0" } });
    if (answer.status !== 202 || answer.location === null) throw this.#failure(answer, { isManifest: false });
    return { location: answer.location, offset: 0 };
  }

  async #part(upload: Upload, { path, size }: PushedBlob): Promise<Upload> {
    const start = upload.offset;
    const end = Math.min(start + PART_BYTES, size);
    const headers = {
      "content-type": "application/octet-stream",
      "content-length": String(end - start),
      "content-range": `${start}-${end - 1}`,
    };
    const body = createReadStream(path, { start, end: end - 1, highWaterMark: READ_BYTES });
    const answer = await this.#call({ method: "PATCH", path: upload.location, headers, body });
    if (answer.status !== 202) throw this.#failure(answer, { isManifest: false });
    const offset = offsetIn(answer.range) ?? end;
    if (offset !== end) throw new Unfinished({ kind: "offset" }, "the registry has another part than was sent");
    return { location: answer.location ?? upload.location, offset };
  }

  async #ask(upload: Upload): Promise<Upload> {
    const answer = await this.#call({ method: "GET", path: upload.location, headers: {} });
    const offset = offsetIn(answer.range);
    if (answer.status !== 204 || offset === null) throw this.#failure(answer, { isManifest: false });
    return { location: answer.location ?? upload.location, offset };
  }

  async #commit({ location }: Upload, { digest, size }: PushedBlob): Promise<void> {
    const path = `${location}${location.includes("?") ? "&" : "?"}digest=${encodeURIComponent(digest)}`;
    const moreMs = size / HASHED_BYTES_PER_MS;
    const answer = await this.#call({ method: "PUT", path, headers: { "content-length": "0" } }, moreMs);
    if (answer.status !== 201) throw this.#failure(answer, { isManifest: false });
  }

  #failure(answer: Answered, { isManifest }: { readonly isManifest: boolean }): Error {
    const meaning = meaningOf(answer, isManifest, this.#options.clock.now());
    if (meaning.kind === "refused") return new PushRefused(meaning.text);
    if (meaning.kind === "unknown-blobs") return new UnknownBlobs(meaning.digests);
    return new Unfinished(meaning, `the registry answers ${answer.status}`);
  }

  /** Repeats a request that can be repeated as it is. */
  async #repeated<T>(request: () => Promise<T>): Promise<T> {
    for (let tries = 1; ; tries += 1) {
      try {
        return await request();
      } catch (error) {
        this.#options.signal.throwIfAborted();
        if (error instanceof PushRefused || error instanceof UnknownBlobs || tries === TRIES_MAX) throw error;
        await this.#pause(error, tries);
      }
    }
  }

  async #pause(error: unknown, tries: number): Promise<void> {
    const { clock, signal, retryDelayMs = 500 } = this.#options;
    const asked = error instanceof Unfinished && error.meaning.kind === "wait" ? error.meaning.ms : null;
    await clock.sleep(asked ?? Math.min(retryDelayMs * 2 ** Math.max(0, tries - 1), RETRY_DELAY_MS_MAX), signal);
    signal.throwIfAborted();
  }

  /** Rejects when there is no answer, or the call is silent for too long. */
  async #call(call: Omit<ServerCall, "signal">, moreMs = 0): Promise<Answered> {
    const { callServer, silenceMs = 60_000, clock, signal } = this.#options;
    signal.throwIfAborted();
    using silence = new Silence(clock, silenceMs + moreMs, signal);
    const body = call.body instanceof Readable ? silence.watched(call.body) : call.body;
    const asked = async (): Promise<Answered> => {
      const answer = await callServer({ ...call, ...(body !== undefined && { body }), signal: silence.signal });
      return await readAnswer(answer, call.path);
    };
    try {
      return await orAborted(asked(), silence.signal);
    } catch (error) {
      signal.throwIfAborted();
      const reason: unknown = silence.signal.aborted ? silence.signal.reason : error;
      throw new Error(`the registry cannot be reached: ${messageOf(reason)}`, { cause: reason });
    } finally {
      if (body instanceof Readable) body.destroy();
    }
  }
}

/** Aborts a call in which nothing happens, or with its parent. */
class Silence implements Disposable {
  readonly #controller = new AbortController();
  readonly #parent: AbortSignal;
  readonly #onAbort = (): void => this.#controller.abort(this.#parent.reason);
  readonly #clock: Clock;
  readonly #ms: number;
  #timer: Timer | null = null;

  constructor(clock: Clock, ms: number, parent: AbortSignal) {
    this.#clock = clock;
    this.#ms = ms;
    this.#parent = parent;
    parent.addEventListener("abort", this.#onAbort, { once: true });
    this.#touch();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** The same stream; it is not silent while it is read. */
  watched(source: Readable): Readable {
    const touch = (): void => this.#touch();
    const parts = async function* (): AsyncGenerator<Buffer, void> {
      for await (const part of source as AsyncIterable<Buffer>) {
        touch();
        yield part;
      }
    };
    return Readable.from(parts(), { objectMode: false, highWaterMark: READ_BYTES });
  }

  [Symbol.dispose](): void {
    this.#timer?.cancel();
    this.#parent.removeEventListener("abort", this.#onAbort);
  }

  #touch(): void {
    this.#timer?.cancel();
    const seconds = Math.round(this.#ms / 1000);
    this.#timer = this.#clock.timer(this.#ms, () =>
      this.#controller.abort(new Error(`it was silent for ${seconds} s`)),
    );
  }
}

async function readAnswer(answer: IncomingMessage, path: string): Promise<Answered> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of answer as AsyncIterable<Buffer>) {
    bytes += chunk.byteLength;
    if (bytes > BODY_BYTES_MAX) {
      answer.destroy();
      break;
    }
    chunks.push(chunk);
  }
  const { location, range, "retry-after": retryAfter = null } = answer.headers;
  return {
    status: answer.statusCode ?? 0,
    retryAfter,
    body: Buffer.concat(chunks).toString("utf8"),
    location: locationIn(location, path),
    range: range ?? null,
  };
}

/**
 * Parses and checks large bodies in a separate thread, so that other calls do not wait for a long one.
 *
 * Always:
 * - This thread neither decodes a large body nor takes a long text over as text: the one that an endpoint
 *   declares (`longText`) comes back as bytes, without a copy.
 * - One body is parsed at a time. Tenants whose bodies wait take turns, one body each, so whatever one tenant
 *   sends delays another tenant by one body. So do nodes, which have their own thread.
 * - What waits is counted with the bodies that are held (fairness/admission.ts).
 * - A thread that ends by itself, for example out of memory, refuses the body it had; the next body has a new
 *   thread.
 */
import { Worker } from "node:worker_threads";
import { type ErrorCode, Refusal } from "@flotilla/contract/errors";
import type { RefusalDetails } from "@flotilla/contract/refusal-details";
import type { TSchema } from "@flotilla/contract/schema";
import type { MessageName } from "./node-message.ts";

/** Smaller bodies are parsed where they arrive, which costs less than handing them over. */
export const LARGE_JSON_BYTES = 16 * 1024;
/** Heap for a body's bytes, its text, and its values, several times over. */
const HEAP_MB_MAX = 256;

/** What an endpoint takes as JSON. */
export interface BodyShape {
  /** Name of the endpoint. */
  readonly name: string;
  readonly schema: TSchema;
  readonly isOptional: boolean;
  /** The field that may be a long text. */
  readonly longText: string | null;
  /** The message of a node that it is; null: a caller's body. */
  readonly message: MessageName | null;
}

/** What the thread learns at its start. */
export interface ThreadData {
  readonly isUrgent: boolean;
}

/** What the thread is given. */
export interface ParseOrder {
  readonly pieces: readonly Uint8Array[];
  readonly shape: BodyShape;
  readonly isDigested: boolean;
}

/** What the thread answers: what the body says without its long text, or why it is refused. */
export type Parsed = { readonly digest: string | null } & (
  | { readonly value: unknown; readonly text: Uint8Array<ArrayBuffer> | null }
  | { readonly code: ErrorCode; readonly reason: string; readonly details: RefusalDetails }
);

/** What a body says. */
export interface LargeBody {
  /** As the endpoint's schema has it; a long text is a Buffer. */
  readonly body: unknown;
  /** SHA-256 of the bytes in hexadecimal, if it was asked for. */
  readonly digest: string | null;
}

interface Waiting extends ParseOrder {
  readonly resolve: (body: LargeBody) => void;
  readonly reject: (error: Error) => void;
}

export class LargeJson {
  /** By tenant, in the order of their turns. */
  readonly #waiting = new Map<string, Waiting[]>();
  readonly #isUrgent: boolean;
  #worker: Worker | null = null;
  #current: Waiting | null = null;

  /** `isUrgent`: its thread has the priority of this one. */
  constructor({ isUrgent }: ThreadData = { isUrgent: false }) {
    this.#isUrgent = isUrgent;
  }

  /** The message of a node. Rejects with a Refusal. */
  async message(nodeId: string, message: MessageName, pieces: readonly Uint8Array[]): Promise<unknown> {
    const shape = { name: message, schema: {}, isOptional: false, longText: null, message };
    return (await this.parse(nodeId, { pieces, shape, isDigested: false })).body;
  }

  /** What the body says. The pieces are empty afterwards. Rejects with a Refusal. */
  parse(tenantId: string, order: ParseOrder): Promise<LargeBody> {
    return new Promise((resolve, reject) => {
      const mine = this.#waiting.get(tenantId) ?? [];
      this.#waiting.set(tenantId, mine);
      mine.push({ ...order, resolve, reject });
      if (this.#current === null) this.#next();
    });
  }

  #next(): void {
    const [first] = this.#waiting;
    if (first === undefined) return;
    const [tenantId, queue] = first;
    this.#waiting.delete(tenantId);
    const next = queue.shift();
    if (queue.length > 0) this.#waiting.set(tenantId, queue);
    if (next === undefined) return;
    this.#current = next;
    this.#worker ??= this.#start();
    this.#worker.ref();
    const { pieces, shape, isDigested } = next;
    // Only a piece that has its memory to itself can change hands; others are copied.
    const given = pieces
      .filter(({ buffer, byteLength }) => buffer.byteLength === byteLength)
      .map(({ buffer }) => buffer);
    this.#worker.postMessage({ pieces, shape, isDigested } satisfies ParseOrder, given as ArrayBuffer[]);
  }

  #start(): Worker {
    const worker = new Worker(new URL("./json-worker.ts", import.meta.url), {
      resourceLimits: { maxOldGenerationSizeMb: HEAP_MB_MAX },
      workerData: { isUrgent: this.#isUrgent } satisfies ThreadData,
    });
    worker.on("message", (parsed: Parsed) => this.#settle(parsed));
    worker.on("error", () => undefined);
    worker.on("exit", () => {
      if (this.#worker === worker) this.#worker = null;
      const reason = "the request body could not be parsed; send it again in a moment";
      if (this.#current !== null) this.#settle({ code: "unavailable", reason, details: {}, digest: null });
    });
    return worker;
  }

  #settle(parsed: Parsed): void {
    const current = this.#current;
    this.#current = null;
    if (current !== null) {
      if ("value" in parsed) current.resolve({ body: withText(parsed, current.shape), digest: parsed.digest });
      else current.reject(new Refusal(parsed.code, parsed.reason, parsed.details));
    }
    // A thread that waits keeps no process from ending.
    this.#worker?.unref();
    this.#next();
  }
}

function withText(
  { value, text }: Extract<Parsed, { readonly value: unknown }>,
  { longText, message }: BodyShape,
): unknown {
  // The thread has read it, so it has only the fields of its schema, and few names.
  if (message !== null && text !== null) return JSON.parse(Buffer.from(text.buffer).toString());
  if (text === null || longText === null) return value;
  return { ...(value as object), [longText]: Buffer.from(text.buffer, text.byteOffset, text.byteLength) };
}

/**
 * Parses large bodies in a thread of its own, so that other calls do not wait for a long one.
 *
 * Always: one body is parsed at a time; tenants whose bodies wait take turns, one body each. So what one of them sends,
 * however much, delays another's by one body. What waits is counted with the bodies that are held (admission.ts). A thread
 * that ends of itself, as for want of memory, refuses the body it had, and the next body has a new one.
 */
import { Worker } from "node:worker_threads";
import { type ErrorCode, Refusal } from "@flotilla/contract/errors";

/** Smaller bodies are parsed where they came: that takes less than handing them over. */
export const LARGE_JSON_BYTES = 16 * 1024;
/** More than comes in one piece: such bytes are in memory of their own, which can change hands. */
const OWN_MEMORY_BYTES = 128 * 1024;
/** A body's bytes, its text, and the values of it, several times over. */
const HEAP_MB_MAX = 256;

/** What the thread says of a body. */
export type Parsed = { readonly value: unknown } | { readonly code: ErrorCode; readonly text: string };

interface Waiting {
  readonly bytes: Buffer;
  readonly isKept: boolean;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: Error) => void;
}

export class LargeJson {
  /** By tenant, in the order of their turns. */
  readonly #waiting = new Map<string, Waiting[]>();
  #worker: Worker | null = null;
  #current: Waiting | null = null;

  /** The value; undefined for no body at all. The bytes are gone afterwards, unless they are kept. Rejects with a Refusal. */
  parse(tenantId: string, bytes: Buffer, { isKept }: { readonly isKept: boolean }): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const mine = this.#waiting.get(tenantId) ?? [];
      this.#waiting.set(tenantId, mine);
      mine.push({ bytes, isKept, resolve, reject });
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
    const { bytes, isKept } = next;
    this.#worker.postMessage(bytes, isKept || bytes.byteLength < OWN_MEMORY_BYTES ? [] : [bytes.buffer as ArrayBuffer]);
  }

  #start(): Worker {
    const worker = new Worker(new URL("./json-worker.ts", import.meta.url), {
      resourceLimits: { maxOldGenerationSizeMb: HEAP_MB_MAX },
    });
    worker.on("message", (parsed: Parsed) => this.#settle(parsed));
    worker.on("error", () => undefined);
    worker.on("exit", () => {
      if (this.#worker === worker) this.#worker = null;
      if (this.#current !== null)
        this.#settle({ code: "unavailable", text: "the request body could not be parsed; send it again in a moment" });
    });
    return worker;
  }

  #settle(parsed: Parsed): void {
    const current = this.#current;
    this.#current = null;
    if (current !== null) {
      if ("value" in parsed) current.resolve(parsed.value);
      else current.reject(new Refusal(parsed.code, parsed.text));
    }
    // A thread that waits keeps no process from ending.
    this.#worker?.unref();
    this.#next();
  }
}

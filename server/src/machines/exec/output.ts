/**
 * Collects the output of a command up to the caps, and converts it into the fields of the answer.
 *
 * Always:
 * - Output above the cap is dropped, so that the command continues. Text is cut between code points.
 * - The bytes of all concurrent commands of a tenant, and of all tenants, are bounded. Above the bound only
 *   the bytes that the text needs are kept.
 */
import { Pieces } from "@flotilla/base/pieces";
import type { ExecOutput, MachineExecResponse } from "@flotilla/contract/exec";
import { EXEC_B64_BYTES_MAX, EXEC_TEXT_BYTES_MAX } from "@flotilla/contract/limits";
import { Budget } from "../../fairness/budget.ts";
import type { OutputSink } from "../../link/exec-frames.ts";

/** The bounds of one server for the output of all commands of a tenant, and of all tenants. */
const TENANT_OUTPUT_BYTES_MAX = 256 * 1024 * 1024;
const ALL_OUTPUT_BYTES_MAX = 1024 * 1024 * 1024;

export const outputBudget = (): Budget => new Budget({ perHolder: TENANT_OUTPUT_BYTES_MAX, all: ALL_OUTPUT_BYTES_MAX });

/** The tenant of the output, and the budget that it counts against. */
export interface OutputShare {
  readonly budget: Budget;
  readonly tenantId: string;
}

const NOTHING = Buffer.alloc(0);

class CappedBuffer {
  /** Most commands write once, which needs no copy. */
  #first: Uint8Array | null = null;
  readonly #rest: Pieces;
  readonly #max: number;
  readonly #share: OutputShare;
  #taken = 0;
  bytes = 0;
  /** Whether more was written than is kept. */
  isCut = false;

  constructor(max: number, share: OutputShare) {
    this.#max = max;
    this.#share = share;
    this.#rest = new Pieces(max);
  }

  add(chunk: Uint8Array): void {
    if (this.isCut) return;
    const room = this.#max - this.bytes;
    const part = chunk.byteLength > room ? chunk.subarray(0, room) : chunk;
    const beyondText = this.bytes + part.byteLength > EXEC_TEXT_BYTES_MAX;
    if (beyondText && this.#share.budget.take(this.#share.tenantId, part.byteLength) !== null) {
      this.isCut = true;
      return;
    }
    if (beyondText) this.#taken += part.byteLength;
    this.isCut = part.byteLength < chunk.byteLength;
    if (part.byteLength === 0) return;
    if (this.#first === null) this.#first = part;
    else this.#rest.add(part);
    this.bytes += part.byteLength;
  }

  all(): Buffer {
    const first = this.#first ?? NOTHING;
    const rest = this.#rest.all();
    return rest.length > 0
      ? Buffer.concat([first, ...rest])
      : Buffer.from(first.buffer, first.byteOffset, first.byteLength);
  }

  release(): void {
    this.#share.budget.release(this.#share.tenantId, this.#taken);
    this.#taken = 0;
    this.#first = null;
    this.#rest.clear();
  }
}

/** The end of the longest prefix of at most `max` bytes that cuts no UTF-8 sequence. */
export function cutAt(bytes: Uint8Array, max: number): number {
  if (bytes.byteLength <= max) return bytes.byteLength;
  let end = max;
  // A continuation byte at the cut belongs to a sequence of at most four bytes that begins before it.
  while (end > max - 4 && end > 0 && ((bytes[end] ?? 0) & 0xc0) === 0x80) end -= 1;
  return ((bytes[end] ?? 0) & 0xc0) === 0x80 ? max : end;
}

/**
 * At most EXEC_TEXT_BYTES_MAX bytes of text. Each byte outside UTF-8 becomes a replacement character, which
 * has three.
 */
function cappedText(bytes: Buffer): { readonly text: string; readonly isCut: boolean } {
  const end = cutAt(bytes, EXEC_TEXT_BYTES_MAX);
  const text = bytes.toString("utf8", 0, end);
  const encoded = Buffer.byteLength(text) > EXEC_TEXT_BYTES_MAX ? Buffer.from(text) : null;
  if (encoded === null) return { text, isCut: end < bytes.byteLength };
  return { text: encoded.toString("utf8", 0, cutAt(encoded, EXEC_TEXT_BYTES_MAX)), isCut: true };
}

type OutputFields = Omit<MachineExecResponse, "exitCode" | "durationMs" | "machineId">;

/** The output of one command; `[Symbol.dispose]` releases its share of the budget. */
export class CollectedOutput implements OutputSink, Disposable {
  readonly #requested: ExecOutput;
  readonly #kept: { readonly stdout: CappedBuffer; readonly stderr: CappedBuffer };

  constructor(wanted: ExecOutput, share: OutputShare) {
    this.#requested = wanted;
    const max = wanted === "text" ? EXEC_TEXT_BYTES_MAX + 1 : EXEC_B64_BYTES_MAX;
    this.#kept = { stdout: new CappedBuffer(max, share), stderr: new CappedBuffer(max, share) };
  }

  onOutput(stream: "stdout" | "stderr", chunk: Uint8Array): void {
    this.#kept[stream].add(chunk);
  }

  fields(): OutputFields {
    const stdout = this.#stream(this.#kept.stdout);
    const stderr = this.#stream(this.#kept.stderr);
    return {
      stdout: stdout.text,
      stderr: stderr.text,
      stdoutTruncated: stdout.isTruncated,
      stderrTruncated: stderr.isTruncated,
      ...(this.#requested === "text"
        ? {}
        : {
            stdoutB64: stdout.b64,
            stderrB64: stderr.b64,
            stdoutB64Truncated: this.#kept.stdout.isCut,
            stderrB64Truncated: this.#kept.stderr.isCut,
          }),
    };
  }

  [Symbol.dispose](): void {
    this.#kept.stdout.release();
    this.#kept.stderr.release();
  }

  #stream(kept: CappedBuffer): { readonly text: string; readonly b64: string; readonly isTruncated: boolean } {
    const bytes = kept.all();
    const hasText = this.#requested !== "b64";
    const text = hasText ? cappedText(bytes) : { text: "", isCut: false };
    return {
      text: text.text,
      b64: this.#requested === "text" ? "" : bytes.toString("base64"),
      isTruncated: kept.isCut || text.isCut,
    };
  }
}

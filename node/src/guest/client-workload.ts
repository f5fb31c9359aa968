/**
 * The output of a machine's workload, as the host hears it: checked, and held to its window.
 *
 * Always: offsets only grow, and no more than WORKLOAD_WINDOW_BYTES come before some of them were taken; a guest that
 * says otherwise has broken the protocol. Nothing is kept here: whoever listens copies what he keeps.
 */
import { FRAME_PAYLOAD_BYTES_MAX, GuestProtocolError, WORKLOAD_WINDOW_BYTES } from "@flotilla/contract/guest/frame";
import { FieldReader, FieldWriter } from "@flotilla/contract/guest/messages";
import type { GuestWorkload, GuestWorkloadRequest } from "./guest.ts";

const OFFSET_MAX = Number.MAX_SAFE_INTEGER - FRAME_PAYLOAD_BYTES_MAX;

export class ClientWorkload implements GuestWorkload {
  readonly started: Promise<void>;
  readonly #request: GuestWorkloadRequest;
  readonly #sendTaken: (payload: Buffer) => void;
  #nextOffset: number;
  #usedBytes = 0;

  constructor(request: GuestWorkloadRequest, started: Promise<void>, sendTaken: (payload: Buffer) => void) {
    this.#request = request;
    this.started = started;
    this.#sendTaken = sendTaken;
    this.#nextOffset = request.offset;
  }

  taken(offset: number, bytes: number): void {
    this.#usedBytes -= bytes;
    this.#sendTaken(new FieldWriter().time("offset", offset).number("bytes", bytes).end());
  }

  /** The guest says that the workload has said something. */
  takeOutput(payload: Buffer): void {
    const fields = new FieldReader(payload);
    const offset = fields.time("offset");
    const bytes = fields.bytes("output", FRAME_PAYLOAD_BYTES_MAX);
    this.#usedBytes += bytes.byteLength;
    if (offset < this.#nextOffset || offset > OFFSET_MAX || this.#usedBytes > WORKLOAD_WINDOW_BYTES) {
      throw new GuestProtocolError("output of the workload out of its turn");
    }
    this.#nextOffset = offset + bytes.byteLength;
    this.#request.onOutput(offset, bytes);
  }

  takeEnd(payload: Buffer): void {
    const exitCode = new FieldReader(payload).number("exitCode");
    if (exitCode > 255) throw new GuestProtocolError(`exit code ${exitCode}`);
    this.#request.onEnd(exitCode);
  }
}

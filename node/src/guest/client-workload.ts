/**
 * Receives the output of a machine's workload on the host, validated and limited to its window.
 *
 * Always: offsets only increase, and no more than WORKLOAD_WINDOW_BYTES arrive unacknowledged; a guest that
 * violates this breaks the protocol. Nothing is buffered here: the listener copies what it keeps.
 */
import { FRAME_PAYLOAD_BYTES_MAX, GuestProtocolError, WORKLOAD_WINDOW_BYTES } from "@flotilla/contract/guest/frame";
import { FieldReader, FieldWriter } from "@flotilla/contract/guest/messages";
import type { GuestWorkload, GuestWorkloadRequest } from "./guest.ts";

const OFFSET_MAX = Number.MAX_SAFE_INTEGER - FRAME_PAYLOAD_BYTES_MAX;

export class ClientWorkload implements GuestWorkload {
  readonly started: Promise<void>;
  readonly #request: GuestWorkloadRequest;
  readonly #sendAcknowledgement: (payload: Buffer) => void;
  #nextOffset: number;
  #usedBytes = 0;

  constructor(request: GuestWorkloadRequest, started: Promise<void>, sendAcknowledgement: (payload: Buffer) => void) {
    this.#request = request;
    this.started = started;
    this.#sendAcknowledgement = sendAcknowledgement;
    this.#nextOffset = request.offset;
  }

  acknowledge(offset: number, bytes: number): void {
    this.#usedBytes -= bytes;
    this.#sendAcknowledgement(new FieldWriter().u64("offset", offset).u32("bytes", bytes).end());
  }

  /** New output from the guest. */
  receiveOutput(payload: Buffer): void {
    const fields = new FieldReader(payload);
    const offset = fields.u64("offset");
    const bytes = fields.bytes("output", FRAME_PAYLOAD_BYTES_MAX);
    this.#usedBytes += bytes.byteLength;
    if (offset < this.#nextOffset || offset > OFFSET_MAX || this.#usedBytes > WORKLOAD_WINDOW_BYTES) {
      throw new GuestProtocolError("workload output with a wrong offset or without credit");
    }
    this.#nextOffset = offset + bytes.byteLength;
    this.#request.onOutput(offset, bytes);
  }

  receiveEnd(payload: Buffer): void {
    const exitCode = new FieldReader(payload).u32("exitCode");
    if (exitCode > 255) throw new GuestProtocolError(`exit code ${exitCode}`);
    this.#request.onEnd(exitCode);
  }
}

/**
 * The beginning of a guest channel, as the host sees it: its hello, and the search for the answer among what the guest
 * had to say to a host before.
 *
 * Always: looks at no more than DISCARDED_BYTES_MAX, and holds no more than the bytes of a nonce between chunks. The nonce
 * is drawn for this connection, so nothing that was said before can look like its answer.
 */
import {
  FRAME_HEADER_BYTES,
  type Frame,
  GUEST_FRAMES,
  GUEST_PROTOCOL,
  GuestProtocolError,
} from "@flotilla/contract/guest/frame";
import { FieldReader, HELLO_MAGIC, HELLO_NONCE_BYTES } from "@flotilla/contract/guest/messages";
import type { GuestHello } from "./guest.ts";

/** More than guest, VMM and socket can hold between them. */
const DISCARDED_BYTES_MAX = 64 * 1024 * 1024;

export class HelloSearch {
  /** The payload of our hello, which its answer begins with. */
  readonly question: Buffer;
  #isFound = false;
  #held = Buffer.alloc(0);
  #discardedBytes = 0;

  constructor(randomBytes: (size: number) => Buffer) {
    this.question = Buffer.concat([HELLO_MAGIC, randomBytes(HELLO_NONCE_BYTES)]);
  }

  /** What comes from the first byte of the answer's frame on; undefined while it is not there. */
  push(chunk: Buffer): Buffer | undefined {
    if (this.#isFound) return chunk;
    const bytes = this.#held.byteLength === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    const at = bytes.indexOf(this.question);
    if (at >= FRAME_HEADER_BYTES) {
      this.#isFound = true;
      this.#held = Buffer.alloc(0);
      return bytes.subarray(at - FRAME_HEADER_BYTES);
    }
    const kept = Math.min(bytes.byteLength, FRAME_HEADER_BYTES + this.question.byteLength - 1);
    this.#discardedBytes += bytes.byteLength - kept;
    if (this.#discardedBytes > DISCARDED_BYTES_MAX) {
      throw new GuestProtocolError(`no answer to the hello within ${DISCARDED_BYTES_MAX} bytes`);
    }
    this.#held = Buffer.from(bytes.subarray(bytes.byteLength - kept));
    return undefined;
  }

  /** What the answer says. Throws GuestProtocolError when it is none, or of a protocol we do not speak. */
  read(frame: Frame): GuestHello {
    const length = this.question.byteLength;
    if (frame.type !== GUEST_FRAMES.helloAnswer || !frame.payload.subarray(0, length).equals(this.question)) {
      throw new GuestProtocolError(`a frame of type ${frame.type} in place of the answer to the hello`);
    }
    const fields = new FieldReader(frame.payload.subarray(length));
    const protocol = fields.number("protocol");
    if (protocol !== GUEST_PROTOCOL) {
      throw new GuestProtocolError(`it speaks version ${protocol} of the protocol, not ${GUEST_PROTOCOL}`);
    }
    return {
      protocol,
      agentVersion: fields.text("agentVersion"),
      isConfigured: fields.number("isConfigured") !== 0,
      uptimeMs: fields.time("uptimeMs"),
    };
  }
}

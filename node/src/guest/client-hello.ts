/**
 * The start of a guest channel on the host: its hello, and the search for the answer behind data meant for an earlier host.
 *
 * Always: reads no more than DISCARDED_BYTES_MAX, and keeps no more than the bytes of a nonce between chunks. The nonce is
 * random per connection, so no earlier data can look like the answer.
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

/** More than guest, VMM and socket can buffer together. */
const DISCARDED_BYTES_MAX = 64 * 1024 * 1024;

export class HelloSearch {
  /** The payload of our hello, which the answer starts with. */
  readonly hello: Buffer;
  #isFound = false;
  #held = Buffer.alloc(0);
  #discardedBytes = 0;

  constructor(randomBytes: (size: number) => Buffer) {
    this.hello = Buffer.concat([HELLO_MAGIC, randomBytes(HELLO_NONCE_BYTES)]);
  }

  /** Returns the data from the first byte of the answer's frame on; undefined until it has arrived. */
  push(chunk: Buffer): Buffer | undefined {
    if (this.#isFound) return chunk;
    const bytes = this.#held.byteLength === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    const at = bytes.indexOf(this.hello);
    if (at >= FRAME_HEADER_BYTES) {
      this.#isFound = true;
      this.#held = Buffer.alloc(0);
      return bytes.subarray(at - FRAME_HEADER_BYTES);
    }
    const kept = Math.min(bytes.byteLength, FRAME_HEADER_BYTES + this.hello.byteLength - 1);
    this.#discardedBytes += bytes.byteLength - kept;
    if (this.#discardedBytes > DISCARDED_BYTES_MAX) {
      throw new GuestProtocolError(`no answer to the hello within ${DISCARDED_BYTES_MAX} bytes`);
    }
    this.#held = Buffer.from(bytes.subarray(bytes.byteLength - kept));
    return undefined;
  }

  /** Parses the answer. Throws GuestProtocolError when it is invalid or has another protocol version. */
  read(frame: Frame): GuestHello {
    const length = this.hello.byteLength;
    if (frame.type !== GUEST_FRAMES.helloAnswer || !frame.payload.subarray(0, length).equals(this.hello)) {
      throw new GuestProtocolError(`a frame of type ${frame.type} instead of the answer to the hello`);
    }
    const fields = new FieldReader(frame.payload.subarray(length));
    const protocol = fields.u32("protocol");
    if (protocol !== GUEST_PROTOCOL) {
      throw new GuestProtocolError(`the guest has protocol version ${protocol}, not ${GUEST_PROTOCOL}`);
    }
    return { isConfigured: fields.u32("isConfigured") !== 0 };
  }
}

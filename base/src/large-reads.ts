/**
 * Unix sockets whose reads bring more than the 64 KiB that Node reads at a time.
 *
 * Streams between the programs of a host are bound by the number of pieces, not by their bytes: each piece is parsed, counted and
 * written by itself. A reader that is behind its writer gets what waits in the kernel in one piece.
 *
 * Always: a piece has exactly its bytes, in its own memory, so a small one keeps no large buffer.
 */
import { connect, type Socket } from "node:net";

/** The kernel holds about 200 KiB of a Unix socket by default. */
const READ_BYTES = 256 * 1024;

/** Shared by all sockets: what is read into it is copied before anything else is read. */
let buffer: Buffer | null = null;

/** Connects to a Unix socket, as `connect` of node:net does. */
export function connectUnix(path: string): Socket {
  buffer ??= Buffer.allocUnsafeSlow(READ_BYTES);
  const socket: Socket = connect({
    path,
    onread: {
      buffer,
      // False stops reading until the stream is read, as Node's own reads do.
      callback: (size, bytes) => {
        const piece = Buffer.allocUnsafeSlow(size);
        piece.set(bytes.subarray(0, size));
        return socket.push(piece);
      },
    },
  });
  return socket;
}

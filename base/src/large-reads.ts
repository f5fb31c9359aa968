/**
 * Unix sockets whose reads bring more than the 64 KiB that Node reads at a time, and a bound on what any
 * socket reads ahead.
 *
 * Streams between the programs of a host are bound by the number of pieces, not by their bytes: each piece is
 * parsed, counted and written by itself. A reader that is behind its writer gets what waits in the kernel in
 * one piece.
 *
 * Always:
 * - A piece has exactly its bytes, in its own memory, so a small one keeps no large buffer.
 * - What was read and not used is at most twice READ_BYTES.
 */
import { connect, type Socket } from "node:net";
import { Duplex } from "node:stream";

/** The kernel holds about 200 KiB of a Unix socket by default. */
const READ_BYTES = 256 * 1024;
const NOTHING = Buffer.alloc(0);

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
  socket.read = readPushed;
  boundReadAhead(socket);
  return socket;
}

// One function for all sockets: a separate one would keep each in memory
// (docs/decisions/0018-what-one-caller-may-hold.md).

/** Node's own read() of such a socket reads on whatever is unused. */
function readPushed(this: Socket, size?: number): unknown {
  return Duplex.prototype.read.call(this, size);
}

/**
 * Has the socket read on only when less than READ_BYTES of it are unused.
 *
 * A parser that takes all with `read()` and gives back what it cannot use yet (undici's, while the reader of
 * an answer is slow) makes Node read another piece each time, because nothing is left in between: without
 * this bound all that a writer sends is held, and copied with each piece.
 */
export function boundReadAhead(socket: Socket): void {
  socket._read = readAhead;
}

function readAhead(this: Socket, size: number): void {
  const readOn = (): void => (Object.getPrototypeOf(this) as Socket)._read.call(this, size);
  if (this.readableLength < READ_BYTES) return readOn();
  process.nextTick(() => {
    if (this.destroyed) return;
    if (this.readableLength < READ_BYTES) readOn();
    // Ends this call of _read(); the next read() makes another one.
    else this.push(NOTHING);
  });
}

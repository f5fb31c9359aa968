/**
 * The answer of one command on the link: its output and other frames, written to the server in few pieces.
 *
 * Each piece costs the server and the caller more than its bytes do. So the frames of one turn of the event
 * loop are written together, output of one stream as one frame. Output that ends with a large piece is
 * probably followed by more: it is gathered for GATHER_MS, or until there are GATHERED_BYTES.
 *
 * Always:
 * - Frames and the pieces of output are written in the order in which they came.
 * - Output whose last piece is small (a terminal, a prompt, the end of a burst) is written in its turn, with
 *   what was gathered before it. All output is written so while the caller does not read, and that of
 *   connections always: the guest sends a window of it, and then waits until the other end has some.
 * - While HELD_BYTES or more wait for the caller, the command's outputs are paused.
 */
import type { ServerResponse } from "node:http";
import type { Clock, Timer } from "@flotilla/base/clock";
import { encodeLinkFrameHead, LINK_PAYLOAD_BYTES_MAX, type LinkFrameType } from "@flotilla/contract/link/frames";

/** The guest reads a pipe that is never empty in pieces of up to 64 KiB. */
const LARGE_PIECE_BYTES = 16 * 1024;
/** With the next piece it is less than HELD_BYTES, mostly. */
const GATHERED_BYTES = 96 * 1024;
const GATHER_MS = 1;
/** Up to this size a copy costs less than another buffer to write. */
const COPIED_BYTES_MAX = 4096;
/**
 * How much may wait for the caller before the outputs are paused: more than the connection's own high-water
 * mark, at which each large frame would pause them. With the window of a stream it is less than what the
 * guest keeps of a command (decision 53).
 */
const HELD_BYTES = 128 * 1024;

export interface LinkOutputOptions {
  readonly clock: Clock;
  /** Whether large output may wait for more. */
  readonly gathers: boolean;
  /** Pauses the command's outputs, or resumes them. */
  readonly onBlocked: (isBlocked: boolean) => void;
}

export class LinkOutput {
  readonly #response: ServerResponse;
  readonly #clock: Clock;
  readonly #gathers: boolean;
  readonly #onBlocked: (isBlocked: boolean) => void;
  /** Output of one stream, which becomes one frame. */
  #gathered: { readonly type: LinkFrameType; readonly payloads: Buffer[]; bytes: number } | null = null;
  /** Whether the last piece says that more is coming. */
  #expectsMore = false;
  #gatherTimer: Timer | null = null;
  #isTurnOpen = false;
  #isCorked = false;
  #isBlocked = false;
  readonly #onSocketDrain = (): void => this.#onDrain();

  constructor(response: ServerResponse, { clock, gathers, onBlocked }: LinkOutputOptions) {
    this.#response = response;
    this.#clock = clock;
    this.#gathers = gathers;
    this.#onBlocked = onBlocked;
    response.on("drain", () => this.#onDrain());
  }

  /** Whether the caller does not read, so that the outputs are paused. */
  get isBlocked(): boolean {
    return this.#isBlocked;
  }

  /** A piece of output. Its memory is used until it is written. */
  add(type: LinkFrameType, piece: Buffer): void {
    for (let at = 0; at < piece.byteLength; at += LINK_PAYLOAD_BYTES_MAX)
      this.#gather(type, piece.subarray(at, at + LINK_PAYLOAD_BYTES_MAX));
    this.#expectsMore = this.#gathers && piece.byteLength >= LARGE_PIECE_BYTES;
  }

  /** Another frame, which is written in this turn. */
  send(frame: Buffer): void {
    this.#openTurn();
    this.#expectsMore = false;
    this.#writeGathered();
    this.#write(frame);
    this.#blockIfFull();
  }

  /** Writes all output, then the last frame, and ends the answer. */
  end(last?: Buffer): void {
    // end() of a corked response overtakes what is corked, which is lost then (Node 24).
    this.#flush();
    this.#response.end(last);
  }

  /** The caller has disconnected. */
  drop(): void {
    this.#gatherTimer?.cancel();
    this.#gatherTimer = null;
    this.#gathered = null;
  }

  #gather(type: LinkFrameType, payload: Buffer): void {
    const gathered = this.#gathered;
    this.#openTurn();
    if (gathered?.type === type && gathered.bytes + payload.byteLength <= LINK_PAYLOAD_BYTES_MAX) {
      gathered.payloads.push(payload);
      gathered.bytes += payload.byteLength;
    } else {
      this.#writeGathered();
      this.#gathered = { type, payloads: [payload], bytes: payload.byteLength };
    }
    this.#blockIfFull();
  }

  #openTurn(): void {
    if (this.#isTurnOpen) return;
    this.#isTurnOpen = true;
    process.nextTick(() => this.#endTurn());
  }

  #endTurn(): void {
    this.#isTurnOpen = false;
    const { bytes } = this.#gathered ?? { bytes: 0 };
    if (!this.#expectsMore || this.#isBlocked || bytes === 0 || bytes >= GATHERED_BYTES) return this.#flush();
    this.#gatherTimer ??= this.#clock.timer(GATHER_MS, () => this.#flush());
    this.#uncork();
  }

  #flush(): void {
    this.#gatherTimer?.cancel();
    this.#gatherTimer = null;
    this.#writeGathered();
    this.#uncork();
  }

  #writeGathered(): void {
    const gathered = this.#gathered;
    if (gathered === null) return;
    this.#gathered = null;
    const { type, payloads, bytes } = gathered;
    const head = encodeLinkFrameHead(type, bytes);
    if (bytes <= COPIED_BYTES_MAX) this.#write(Buffer.concat([head, ...payloads]));
    // They are sent together, because the response is corked.
    else for (const part of [head, ...payloads]) this.#write(part);
  }

  #write(part: Buffer): void {
    if (!this.#isCorked) this.#response.cork();
    this.#isCorked = true;
    this.#response.write(part);
  }

  #blockIfFull(): void {
    const heldBytes = this.#response.writableLength + (this.#gathered?.bytes ?? 0);
    if (this.#isBlocked || heldBytes < HELD_BYTES) return;
    this.#isBlocked = true;
    this.#onBlocked(true);
  }

  #uncork(): void {
    if (!this.#isCorked) return;
    this.#isCorked = false;
    // uncork() writes each part of a chunk separately (Node 24): its length alone would wake the server.
    const { socket } = this.#response;
    socket?.cork();
    this.#response.uncork();
    socket?.uncork();
    // A corked response that was full emits no `drain` when its bytes then fit into the socket (Node 24: it
    // comes only from a socket that was full itself, or when nothing is left).
    if (!this.#isBlocked) return;
    if (socket?.writableNeedDrain === false) this.#onDrain();
    // A response emits `drain` only if a single chunk was large, whatever waits in its socket (Node 24).
    else socket?.off("drain", this.#onSocketDrain).once("drain", this.#onSocketDrain);
  }

  #onDrain(): void {
    if (!this.#isBlocked) return;
    this.#isBlocked = false;
    this.#onBlocked(false);
  }
}

/**
 * Ends requests whose body arrives too slowly or does not end; Node has no limit for them.
 *
 * Always:
 * - A body that is held in memory arrives at BODY_BYTES_PER_SECOND_MIN or faster, and within BODY_MS_MAX;
 *   otherwise its request is refused with 408.
 * - A streamed body that is being read is never silent for longer than its limit.
 * - The rest of a body whose request has been answered is read for DRAIN_MS_MAX, so that the answer reaches
 *   a caller that reads it only when all is sent. A body that is not streamed has a limit, so DRAIN_BYTES_MAX
 *   of it are enough.
 * - Bytes are counted on the connection, so chunked framing cannot hide them.
 *
 * One loop checks all of them each second, while there are any. A body that arrives within a second is never
 * checked.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Clock } from "@flotilla/base/clock";
import { LinkedList } from "@flotilla/base/linked-list";
import { Refusal } from "@flotilla/contract/errors";
import { BODY_BYTES_PER_SECOND_MIN, BODY_GRACE_MS, BODY_MS_MAX, DRAIN_BYTES_MAX, DRAIN_MS_MAX } from "./bounds.ts";

const LOOK_MS = 1_000;

/** false: it needs no further check. */
type Look = (now: number) => boolean;

export class BodyWatch {
  readonly #clock: Clock;
  readonly #watched = new LinkedList<Look>();
  readonly #streamed = new WeakSet<IncomingMessage>();
  #isChecking = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * A body that is held until it is complete, or the function that is returned is called. `refuse` is called
   * at most once, with a Refusal.
   */
  buffered(message: IncomingMessage, refuse: (refusal: Refusal) => void): () => void {
    const startedAt = this.#clock.monotonic();
    const bytesBefore = message.socket.bytesRead;
    return this.#add((now) => {
      if (message.complete || message.destroyed) return false;
      const elapsed = now - startedAt;
      const expected = ((elapsed - BODY_GRACE_MS) / 1000) * BODY_BYTES_PER_SECOND_MIN;
      if (elapsed <= BODY_MS_MAX && message.socket.bytesRead - bytesBefore >= expected) return true;
      refuse(tooSlow());
      return false;
    });
  }

  /** A streamed body. The connection ends when nothing arrives for `silenceMs`. */
  streamed(message: IncomingMessage, silenceMs: number): void {
    this.#streamed.add(message);
    let bytes = -1;
    let heardAt = 0;
    this.#add((now) => {
      if (message.complete || message.destroyed) return false;
      // By events, or by an iterator, which has taken all that came.
      const isIterated = message.listenerCount("readable") > 0 && message.readableLength === 0;
      const isWaitedFor = message.readableFlowing === true || isIterated;
      if (!isWaitedFor || message.socket.bytesRead !== bytes) {
        bytes = message.socket.bytesRead;
        heardAt = now;
      }
      if (now - heardAt <= silenceMs) return true;
      message.socket.destroy();
      return false;
    });
  }

  /** A request that was answered before its body had arrived. */
  leftOver(message: IncomingMessage, response: ServerResponse): void {
    const { socket } = message;
    const bytesBefore = socket.bytesRead;
    const bytesMax = this.#streamed.has(message) ? Number.POSITIVE_INFINITY : DRAIN_BYTES_MAX;
    let answeredAt: number | null = null;
    this.#add((now) => {
      if (message.complete || socket.destroyed) return false;
      if (response.writableFinished) answeredAt ??= now;
      const isLate = answeredAt !== null && now - answeredAt > DRAIN_MS_MAX;
      if (!isLate && socket.bytesRead - bytesBefore <= bytesMax) return true;
      socket.destroy();
      return false;
    });
  }

  #add(look: Look): () => void {
    const place = this.#watched.append(look);
    if (!this.#isChecking) this.#scheduleCheck();
    return () => void place.remove();
  }

  #scheduleCheck(): void {
    this.#isChecking = true;
    this.#clock.timer(LOOK_MS, () => {
      this.#isChecking = false;
      const now = this.#clock.monotonic();
      for (const place of this.#watched.links()) if (!place.value(now)) place.remove();
      if (this.#watched.size > 0) this.#scheduleCheck();
    });
  }
}

const tooSlow = (): Refusal =>
  new Refusal(
    "body_too_slow",
    `the request body arrived too slowly: it must arrive at ${BODY_BYTES_PER_SECOND_MIN} bytes per second or faster and be ` +
      `complete within ${BODY_MS_MAX / 60_000} minutes; send the request again`,
    { headers: { connection: "close" } },
  );

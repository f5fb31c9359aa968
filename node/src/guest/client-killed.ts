/**
 * What a guest says of processes that its kernel has killed for lack of memory.
 *
 * Always: the guest may report again only KILLED_MS after its last report, so a hostile one does not fill
 * its timeline.
 */
import type { Clock, Timer } from "@flotilla/base/clock";
import { GuestProtocolError } from "@flotilla/contract/guest/frame";
import { FieldReader, KILLED_PROGRAM_BYTES_MAX } from "@flotilla/contract/guest/messages";
import type { GuestKilled } from "./guest.ts";

const KILLED_MS = 60_000;
const PRINTABLE = /^[ -~]*$/;

export class ClientKilled {
  readonly #clock: Clock;
  /** Sends that the last report was read. */
  readonly #sendRead: () => void;
  #listener: ((killed: GuestKilled) => void) | null = null;
  /** Arrived before there was a listener. */
  #waiting: GuestKilled | null = null;
  #reading: Timer | null = null;

  constructor(clock: Clock, sendRead: () => void) {
    this.#clock = clock;
    this.#sendRead = sendRead;
  }

  listen(listener: (killed: GuestKilled) => void): void {
    this.#listener = listener;
    if (this.#waiting !== null) listener(this.#waiting);
    this.#waiting = null;
  }

  receive(payload: Buffer): void {
    if (this.#reading !== null)
      throw new GuestProtocolError("a report of killed processes before the last one was read");
    const fields = new FieldReader(payload);
    const [program, count] = [fields.text("program"), fields.u32("kills")];
    if (program.length >= KILLED_PROGRAM_BYTES_MAX || !PRINTABLE.test(program) || count === 0)
      throw new GuestProtocolError("a report of killed processes that no kernel makes");
    this.#reading = this.#clock.timer(KILLED_MS, () => {
      this.#reading = null;
      this.#sendRead();
    });
    const killed = { program, count };
    if (this.#listener === null) this.#waiting = killed;
    else this.#listener(killed);
  }

  /** The channel is lost. */
  end(): void {
    this.#reading?.cancel();
  }
}

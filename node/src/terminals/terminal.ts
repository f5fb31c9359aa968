/**
 * One kept terminal: a program with a terminal in a guest, which waits a minute for a client that lost its
 * connection.
 *
 * Always:
 * - One client writes: the last that came. Others read, as slowly as they like, and miss what is not kept.
 * - The program is paused while RING_BYTES of its output are not acknowledged, also without a client. So no
 *   byte is lost, and what is held is bounded.
 * - Output and input are counted in bytes since the program began, so a client that comes back says where it
 *   is, and learns where the machine is.
 * - The states are those of state.ts. The end of the program waits for its client like output.
 *
 * In memory only. When the agent ends, the guest keeps the program for its next agent (decision 53), and the
 * client continues it there.
 */
import type { Clock, Timer } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { ExecExit, LinkError } from "@flotilla/contract/link/link";
import type { ExecResumed, TerminalSize } from "@flotilla/contract/link/streams";
import { EXIT_CODE_TIMEOUT, TERMINAL_INPUT_BYTES_MAX, TERMINAL_KEPT_MS } from "@flotilla/contract/limits";
import type { GuestExec } from "../guest/guest.ts";
import { OutputRing } from "./output-ring.ts";
import { isDetached, TERMINAL_TABLE, type TerminalEvent, type TerminalState } from "./state.ts";

/** Time for a shell to save its history, and for its jobs to end, after a hang-up. */
const HANG_UP_GRACE_MS = 2_000;
/** A guest that does not report the end of a killed program within this time counts as unreachable. */
const KILL_DEADLINE_MS = 10_000;
const READERS_MAX = 16;

/** The connection of one client. */
export interface TerminalClient {
  /** Whether it does not read at the moment. Then `unblocked` of its place is called when it does. */
  readonly isBlocked: boolean;
  /** Where input and output are. */
  position(position: ExecResumed): void;
  output(piece: Buffer): void;
  /** The program has ended. */
  exit(exit: ExecExit): void;
  /** The last call. null: the client continues where the machine is next, or has done with the terminal. */
  end(failure: LinkError | null): void;
}

/** A client at a terminal. */
export interface Place {
  readonly client: TerminalClient;
  readonly isReader: boolean;
  /** Offset of the next byte that it gets. */
  cursor: number;
  hasExit: boolean;
}

export interface TerminalParts {
  readonly clock: Clock;
  readonly exec: GuestExec;
  /** Where it continues; zeros at its beginning. */
  readonly offsets: { readonly stdoutBytes: number; readonly stdinBytes: number };
  /** Since its program was started. */
  readonly elapsedMs: number;
  readonly timeoutMs: number | null;
  /** Whether this agent stops, or the machine leaves with its memory: the program continues there. */
  readonly continuesElsewhere: () => boolean;
  /** Calls back when the guest's agent does not answer any more. Returns what cancels that. */
  readonly onSilent: (end: (silence: LinkError) => void) => () => void;
  /** Called once, when nothing of it is kept any more. */
  readonly onGone: () => void;
}

export class Terminal {
  readonly #parts: TerminalParts;
  readonly #exec: GuestExec;
  readonly #ring: OutputRing;
  readonly #startedAt: number;
  readonly #readers = new Set<Place>();
  readonly #cancelOnSilent: () => void;
  #writer: Place | null = null;
  /** It begins for a client that is about to attach. */
  #state: TerminalState = "attached";
  #detachedAt: number | null = null;
  /** How much input was accepted. */
  #inputBytes: number;
  /** How much of it the guest certainly has. */
  #takenBytes: number;
  #exit: ExecExit | null = null;
  #hasTimedOut = false;
  /** Why it is gone; null: the client continues it elsewhere. */
  #failure: LinkError | null = null;
  #minute: Timer | null = null;
  #limit: Timer | null = null;

  constructor(parts: TerminalParts) {
    const { clock, exec, offsets, elapsedMs, timeoutMs, onSilent } = parts;
    this.#parts = parts;
    this.#exec = exec;
    this.#ring = new OutputRing(offsets.stdoutBytes);
    this.#inputBytes = this.#takenBytes = offsets.stdinBytes;
    this.#startedAt = clock.monotonic() - elapsedMs;
    this.#cancelOnSilent = onSilent((silence) => this.#fail(silence));
    exec.stdout.on("data", (piece: Buffer) => this.#onOutput(piece));
    for (const output of [exec.stdout, exec.stderr]) output.on("error", () => undefined);
    // A terminal has one output.
    exec.stderr.resume();
    exec.onInputTaken?.((stdinBytes) => this.#onTaken(stdinBytes));
    exec.exit.then(
      ({ exitCode }) => this.#onExit(exitCode),
      (error: unknown) => {
        if (!parts.continuesElsewhere()) return this.#fail({ code: "guest_unreachable", message: messageOf(error) });
        this.#endAll(null);
        this.#apply("guestLost");
      },
    );
    if (timeoutMs !== null) this.#limit = clock.timer(Math.max(1, timeoutMs - elapsedMs), () => this.#onTimeout());
  }

  /** Since when it waits for its client; null: it does not. */
  get detachedAt(): number | null {
    return this.#detachedAt;
  }

  /** Another client writes from now on. */
  attach(client: TerminalClient, offset: number): Place {
    this.#apply("attach");
    if (this.#state === "gone") client.end(this.#failure);
    const place: Place = { client, isReader: false, cursor: this.#ring.begin(offset), hasExit: false };
    if (this.#state === "gone") return place;
    this.#writer = place;
    client.position({ stdinBytes: this.#inputBytes, stdoutBytes: place.cursor });
    // It may have been taken while there was no client.
    client.position({ stdinBytes: this.#takenBytes });
    this.#pump(place);
    this.#flow();
    return place;
  }

  /** null: as many read as may. */
  watch(client: TerminalClient, offset: number): Place | null {
    if (this.#readers.size >= READERS_MAX) return null;
    const place: Place = { client, isReader: true, cursor: this.#ring.nearest(offset), hasExit: false };
    this.#readers.add(place);
    client.position({ stdinBytes: this.#inputBytes, stdoutBytes: place.cursor });
    this.#pump(place);
    return place;
  }

  /** The connection of the client broke. */
  lost(place: Place): void {
    this.#readers.delete(place);
    if (place !== this.#writer) return;
    this.#writer = null;
    this.#apply("lost");
  }

  /** Its client needs it no more. */
  done(place: Place): void {
    if (place === this.#writer) this.dismiss();
  }

  /** Ends it for all clients. */
  dismiss(): void {
    this.#writer?.client.end(null);
    this.#writer = null;
    this.#apply("done");
  }

  /** Input. Throws when the client sends more than it may before the machine has taken it. */
  type(place: Place, payload: Uint8Array): void {
    if (place !== this.#writer) return;
    this.#inputBytes += payload.byteLength;
    const { stdin } = this.#exec;
    if (!stdin.writable) return;
    if (stdin.writableLength > 2 * TERMINAL_INPUT_BYTES_MAX) throw new Error("more input came than may wait");
    const stdinBytes = this.#inputBytes;
    if (this.#exec.onInputTaken !== undefined) stdin.write(payload);
    else stdin.write(payload, () => this.#onTaken(stdinBytes));
  }

  #onTaken(stdinBytes: number): void {
    this.#takenBytes = Math.max(this.#takenBytes, stdinBytes);
    this.#writer?.client.position({ stdinBytes: this.#takenBytes });
  }

  resize(place: Place, size: TerminalSize): void {
    if (place === this.#writer) this.#exec.resize(size);
  }

  /** The client has so much of the output. */
  acknowledge(place: Place, stdoutBytes: number): void {
    if (place !== this.#writer) return;
    this.#ring.acknowledge(stdoutBytes);
    this.#flow();
  }

  /** The client reads again. */
  unblocked(place: Place): void {
    this.#pump(place);
  }

  #onOutput(piece: Buffer): void {
    if (this.#state === "gone") return;
    this.#ring.add(piece);
    for (const place of this.#places()) this.#pump(place);
    this.#flow();
  }

  /** Reads the program's output exactly while its client may lack more. */
  #flow(): void {
    const { stdout } = this.#exec;
    if (this.#ring.isFull && this.#state !== "gone") stdout.pause();
    else if (stdout.isPaused()) stdout.resume();
  }

  #places(): readonly Place[] {
    return this.#writer === null ? [...this.#readers] : [this.#writer, ...this.#readers];
  }

  /** `isLast`: what is kept is sent also to a client that does not read. */
  #pump(place: Place, isLast = false): void {
    const { client } = place;
    if ((client.isBlocked && !isLast) || place.hasExit) return;
    if (place.cursor < this.#ring.start) {
      place.cursor = this.#ring.start;
      client.position({ stdinBytes: this.#inputBytes, stdoutBytes: place.cursor });
    }
    for (const piece of this.#ring.from(place.cursor)) {
      client.output(piece);
      place.cursor += piece.byteLength;
      if (client.isBlocked && !isLast) return;
    }
    if (this.#exit === null) return;
    place.hasExit = true;
    client.exit(this.#exit);
  }

  #onExit(code: number): void {
    if (this.#exit !== null || this.#state === "gone") return;
    const hasTimedOut = this.#hasTimedOut;
    const exitCode = hasTimedOut ? EXIT_CODE_TIMEOUT : code;
    const durationMs = Math.round(this.#parts.clock.monotonic() - this.#startedAt);
    this.#exit = { exitCode, durationMs, hasTimedOut, pid: null };
    this.#release();
    for (const place of this.#places()) this.#pump(place);
    this.#apply("exit");
  }

  #onTimeout(): void {
    this.#hasTimedOut = true;
    this.#exec.kill(HANG_UP_GRACE_MS);
    // What it printed last is not waited for.
    this.#limit = this.#parts.clock.timer(KILL_DEADLINE_MS, () => this.#onExit(EXIT_CODE_TIMEOUT));
  }

  #fail(failure: LinkError): void {
    if (this.#exit !== null || this.#state === "gone") return;
    this.#failure = failure;
    this.#exec.kill();
    this.#endAll(failure);
    this.#apply("guestLost");
  }

  #endAll(failure: LinkError | null): void {
    for (const place of this.#places()) {
      if (this.#exit !== null) this.#pump(place, true);
      place.client.end(failure);
    }
    this.#readers.clear();
    this.#writer = null;
  }

  #apply(event: TerminalEvent): void {
    const [next, ...acts] = TERMINAL_TABLE[this.#state][event];
    if (!isDetached(next)) this.#stopWaiting();
    this.#state = next;
    for (const act of acts) this.#act(act);
  }

  #act(act: "replace" | "wait" | "kill" | "forget"): void {
    const { clock, onGone } = this.#parts;
    switch (act) {
      case "replace": {
        const before = this.#writer;
        this.#writer = null;
        before?.client.end({ code: "replaced", message: "another client has taken the terminal over" });
        return;
      }
      case "wait":
        this.#detachedAt = clock.monotonic();
        this.#minute = clock.timer(TERMINAL_KEPT_MS, () => this.#apply("minuteOver"));
        return;
      case "kill":
        return this.#exec.kill(HANG_UP_GRACE_MS);
      case "forget":
        this.#release();
        this.#endAll({ code: "not_found", message: "the terminal has ended with its client" });
        this.#exec.release?.();
        // Its output is dropped, but its credit must flow.
        this.#exec.stdout.resume();
        return onGone();
    }
  }

  #stopWaiting(): void {
    this.#minute?.cancel();
    this.#minute = null;
    this.#detachedAt = null;
  }

  #release(): void {
    this.#limit?.cancel();
    this.#limit = null;
    this.#cancelOnSilent();
  }
}

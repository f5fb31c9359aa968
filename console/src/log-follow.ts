/**
 * Follows a log into memory, for the view of logs.
 *
 * Always:
 * - At most LINES_MAX lines and CHARACTERS_MAX characters are kept; the oldest make room, and it is counted.
 * - What comes within a frame is shown together, so a fast log costs no more than a slow one.
 * - A stream that broke, or was paused while the page was hidden, is continued after the last line that came;
 *   where that is no longer among the last lines of the log, a line says so.
 */
import { FlotillaError, type LogRecord, readLogRecords } from "@flotilla/sdk";
import { after, pause } from "./clock.ts";

const LINES_MAX = 200_000;
const CHARACTERS_MAX = 64 * 1024 * 1024;
const TAIL_FIRST = 2_000;
const TAIL_AGAIN = 10_000;
const PAUSE_FIRST_MS = 500;
const PAUSE_MAX_MS = 10_000;
const HIDDEN_MS = 20_000;
/** Removed at once, so that making room is rare. */
const ROOM_LINES = 10_000;

export interface LogLine {
  readonly number: number;
  readonly at: string;
  readonly text: string;
  readonly source: LogRecord["source"];
  readonly instanceId: string | null;
}

export type LogState = "reading" | "following" | "waiting";

export interface LogView {
  readonly lines: readonly LogLine[];
  readonly dropped: number;
  readonly state: LogState;
  readonly error: unknown;
}

type Read = (query: { tail: number; follow: true; format: "json" }, signal: AbortSignal) => Promise<Response>;

export class LogFollower {
  readonly #read: Read;
  readonly #ending = new AbortController();
  readonly #listeners = new Set<() => void>();
  #lines: LogLine[] = [];
  #characters = 0;
  #count = 0;
  #dropped = 0;
  #state: LogState = "reading";
  #error: unknown = null;
  #view: LogView = { lines: [], dropped: 0, state: "reading", error: null };
  #arrived: LogRecord[] = [];
  #frame: number | null = null;
  #stream: AbortController | null = null;
  #stopHiding: () => void = () => undefined;

  constructor(read: Read) {
    this.#read = read;
  }

  start(): () => void {
    const onVisibility = (): void => {
      this.#stopHiding();
      if (document.hidden) this.#stopHiding = after(HIDDEN_MS, () => this.#stream?.abort());
    };
    document.addEventListener("visibilitychange", onVisibility);
    void this.#run();
    return () => {
      document.removeEventListener("visibilitychange", onVisibility);
      this.#stopHiding();
      if (this.#frame !== null) cancelAnimationFrame(this.#frame);
      this.#ending.abort();
      this.#stream?.abort();
    };
  }

  subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  view = (): LogView => this.#view;

  async #run(): Promise<void> {
    const ending = this.#ending.signal;
    let pauseMs = PAUSE_FIRST_MS;
    while (!ending.aborted) {
      if (document.hidden && this.#count > 0) await whenSeen(ending);
      if (ending.aborted) return;
      const stream = new AbortController();
      this.#stream = stream;
      const { signal } = stream;
      try {
        const last = this.#lines.at(-1);
        const query = { tail: last === undefined ? TAIL_FIRST : TAIL_AGAIN, follow: true, format: "json" } as const;
        const records = readLogRecords(await this.#read(query, signal), signal);
        this.#become("following", null);
        pauseMs = PAUSE_FIRST_MS;
        let isAfter = last === undefined;
        for await (const record of records) {
          // What was shown before comes again, up to the last line of it.
          if (!isAfter && last !== undefined && record.timestamp <= last.at) continue;
          isAfter = true;
          this.#push(record);
        }
      } catch (error) {
        const isRefused = error instanceof FlotillaError && error.status >= 400 && error.status < 500;
        this.#become("waiting", error instanceof FlotillaError && error.code === "aborted" ? null : error);
        if (isRefused) return;
      }
      if (!ending.aborted) await pause(pauseMs);
      pauseMs = Math.min(pauseMs * 2, PAUSE_MAX_MS);
    }
  }

  #push(record: LogRecord): void {
    this.#arrived.push(record);
    // A hidden page has no frames.
    if (document.hidden && this.#arrived.length > ROOM_LINES) this.#take();
    this.#frame ??= requestAnimationFrame(() => this.#take());
  }

  #take(): void {
    if (this.#frame !== null) cancelAnimationFrame(this.#frame);
    this.#frame = null;
    for (const { timestamp, message, source, instanceId } of this.#arrived) {
      this.#count += 1;
      this.#characters += message.length;
      this.#lines.push({ number: this.#count, at: timestamp, text: message, source, instanceId: instanceId ?? null });
    }
    this.#arrived = [];
    this.#makeRoom();
    this.#show();
  }

  #makeRoom(): void {
    while (this.#lines.length > 1 && (this.#lines.length > LINES_MAX || this.#characters > CHARACTERS_MAX)) {
      const gone = this.#lines.splice(0, Math.min(ROOM_LINES, this.#lines.length - 1));
      for (const { text } of gone) this.#characters -= text.length;
      this.#dropped += gone.length;
    }
  }

  #become(state: LogState, error: unknown): void {
    this.#state = state;
    this.#error = error;
    this.#show();
  }

  #show(): void {
    // The array is shared; its length is what a view is of.
    this.#view = { lines: this.#lines, dropped: this.#dropped, state: this.#state, error: this.#error };
    for (const listener of this.#listeners) listener();
  }
}

function whenSeen(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const look = (): void => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", look);
      resolve();
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look);
    look();
  });
}

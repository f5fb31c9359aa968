/**
 * Reads a log into the window that the page shows: follows its end, reads on where the window ends, jumps and
 * searches.
 *
 * Always:
 * - It follows or it is paused. A stream that broke, or was ended while the page was hidden, continues after
 *   the last cursor, so no line is lost or shown twice. Where lines were removed before they were read, one
 *   says so.
 * - What comes within SHOW_MS is shown together, so a fast log costs no more than a slow one.
 * - One request at a time changes the window; a jump ends the others.
 */
import { FlotillaError, type LogMark, type LogRecord, readLogMessages } from "@flotilla/sdk";
import { after, now, pause } from "./clock.ts";
import { type LogLine, LogWindow } from "./log-window.ts";

const TAIL = 500;
const PAGE = 1_000;
const PAUSE_FIRST_MS = 500;
const PAUSE_MAX_MS = 10_000;
const HIDDEN_MS = 20_000;
const SHOW_MS = 100;

/** The query of a log that is the same for machines and apps. */
export interface LogQuery {
  readonly format: "json";
  readonly cursors: true;
  readonly follow?: boolean;
  readonly tail?: number;
  readonly limit?: number;
  readonly after?: string;
  readonly before?: string;
  readonly from?: string;
  readonly search?: string;
}

export type ReadLog = (query: LogQuery, signal: AbortSignal) => Promise<Response>;

/** A line by its cursor, or the first line of an instant or later. */
export type LogPlace = { readonly cursor: string } | { readonly time: string };

export interface LogView {
  readonly lines: readonly LogLine[];
  /** `waiting`: for the connection; `reading`: a place of the log. */
  readonly state: "reading" | "following" | "waiting" | "paused";
  /** What is before the first line: nothing, removed lines, or lines that can be read. */
  readonly start: "start" | "trimmed" | "more";
  /** Lines after the last one can be read. */
  readonly hasMore: boolean;
  readonly error: unknown;
  /** Counts jumps: the view scrolls to `target` after each. */
  readonly jump: number;
  /** Number of the line that was jumped to; null: the end. */
  readonly target: number | null;
  /** The line of a link was removed. */
  readonly isTargetGone: boolean;
}

interface Part {
  readonly records: readonly LogRecord[];
  readonly first: LogMark;
  readonly last: LogMark;
}

export class LogReader {
  readonly #read: ReadLog;
  readonly #search: string;
  readonly #ending = new AbortController();
  readonly #listeners = new Set<() => void>();
  #window = new LogWindow("");
  #work = new AbortController();
  #isBusy = false;
  #view: LogView = {
    ...{ lines: [], state: "reading", start: "more", hasMore: false, error: null },
    ...{ jump: 0, target: null, isTargetGone: false },
  };
  #shownAt = 0;
  #stopShowing: (() => void) | null = null;
  #stopHiding: () => void = () => undefined;

  /** `search`: only lines with this text. */
  constructor(read: ReadLog, search = "") {
    this.#read = read;
    this.#search = search;
  }

  /** Begins at a place, or at the end. The function returned ends it. */
  start(place: LogPlace | null): () => void {
    const onVisibility = (): void => {
      this.#stopHiding();
      if (document.hidden) this.#stopHiding = after(HIDDEN_MS, () => this.#view.state === "following" && this.#sleep());
      else if (this.#view.state === "waiting") void this.#follow(false);
    };
    document.addEventListener("visibilitychange", onVisibility);
    if (place === null) this.follow();
    else void this.goTo(place);
    return () => {
      document.removeEventListener("visibilitychange", onVisibility);
      this.#stopHiding();
      this.#stopShowing?.();
      this.#ending.abort();
      this.#work.abort();
    };
  }

  subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  view = (): LogView => this.#view;

  /** Jumps to the end and follows it. */
  follow(): void {
    void this.#follow(true);
  }

  /** The reader is somewhere else, and stays there. */
  pause(): void {
    if (this.#view.state !== "following" && this.#view.state !== "waiting") return;
    this.#begin();
    this.#take();
    this.#show({ state: "paused", hasMore: true });
  }

  /** Reads the page before the first line. */
  async readBefore(): Promise<void> {
    const { state, start } = this.#view;
    if (this.#isBusy || state !== "paused" || start !== "more") return;
    await this.#reading(async (signal) => {
      const { records, first } = await this.#part({ before: this.#window.start, tail: PAGE }, signal);
      this.#window.prepend(first.cursor, records);
      const hasMore = this.#window.trimEnd() || this.#view.hasMore;
      this.#show({ start: first.edge === "start" || first.edge === "trimmed" ? first.edge : "more", hasMore });
    });
  }

  /** Reads the page after the last line. */
  async readAfter(): Promise<void> {
    if (this.#isBusy || this.#view.state !== "paused") return;
    await this.#reading(async (signal) => {
      const { records, first, last } = await this.#part({ after: this.#window.end, limit: PAGE }, signal);
      this.#add(first);
      for (const record of records) this.#window.append(record);
      this.#window.mark(last.cursor);
      const start = this.#window.trimStart() ? "more" : this.#view.start;
      this.#show({ start, hasMore: last.edge !== "end", error: null });
    });
  }

  /** Follows from the last line of the window, which was the end of the log. */
  resume(): void {
    void this.#follow(false);
  }

  /** Shows a place with what is around it. Resolves to its line; null: it was removed, or a later jump won. */
  async goTo(place: LogPlace): Promise<LogLine | null> {
    const signal = this.#begin();
    this.#show({ state: "reading", error: null });
    return await this.#reading(async () => {
      const where = "time" in place ? { from: place.time } : { after: place.cursor };
      const after = await this.#part({ ...where, limit: PAGE }, signal);
      const before = await this.#part({ before: after.first.cursor, tail: TAIL }, signal);
      const window = new LogWindow(after.first.cursor);
      for (const record of after.records) window.append(record);
      window.mark(after.last.cursor);
      const first = window.lines[0]?.number;
      if (before.records.length > 0) window.prepend(before.first.cursor, before.records);
      this.#window = window;
      const { edge } = before.first;
      // In the log of an app lines of the same instant may come before it.
      const isFirst = "time" in place || after.records[0]?.cursor === place.cursor;
      const target = window.lines.find(isFirst ? ({ number }) => number === first : isAt(place.cursor));
      this.#show({
        state: "paused",
        start: edge === "start" || edge === "trimmed" ? edge : "more",
        hasMore: after.last.edge !== "end",
        jump: this.#view.jump + 1,
        target: target?.number ?? first ?? window.lines.at(-1)?.number ?? null,
        isTargetGone: "cursor" in place && target === undefined,
      });
      return target ?? null;
    }, signal);
  }

  /** The next line with the text after a line of the window (before it, backwards); null: there is none. */
  async find(text: string, from: LogLine | null, direction: "down" | "up"): Promise<LogLine | null> {
    const { lines } = this.#window;
    const wanted = text.toLowerCase();
    const at = from === null ? (direction === "down" ? -1 : lines.length) : lines.indexOf(from);
    const fits = (line: LogLine): boolean => line.text.toLowerCase().includes(wanted);
    const known =
      direction === "down" ? lines.slice(at + 1).find(fits) : lines.slice(0, Math.max(0, at)).findLast(fits);
    if (known !== undefined) {
      this.pause();
      return known;
    }
    if (direction === "down" ? !this.#view.hasMore : this.#view.start !== "more") return null;
    const where =
      direction === "down" ? { after: this.#window.end, limit: 1 } : { before: this.#window.start, tail: 1 };
    this.pause();
    const hit = await this.#reading(
      async (signal) => (await this.#part({ ...where, search: text }, signal)).records[0] ?? null,
    );
    return hit?.cursor === undefined ? null : await this.goTo({ cursor: hit.cursor });
  }

  /** Scrolls to a line of the window. */
  see(line: LogLine): void {
    this.#show({ jump: this.#view.jump + 1, target: line.number });
  }

  /** Ends what is under way. */
  #begin(): AbortSignal {
    this.#work.abort();
    this.#work = new AbortController();
    this.#isBusy = false;
    if (this.#ending.signal.aborted) this.#work.abort();
    return this.#work.signal;
  }

  async #reading<T>(work: (signal: AbortSignal) => Promise<T>, signal = this.#work.signal): Promise<T | null> {
    this.#isBusy = true;
    try {
      return await work(signal);
    } catch (error) {
      if (!signal.aborted) this.#show({ error, state: this.#view.state === "reading" ? "paused" : this.#view.state });
      return null;
    } finally {
      if (!signal.aborted) this.#isBusy = false;
    }
  }

  async #part(query: Partial<LogQuery>, signal: AbortSignal): Promise<Part> {
    const records: LogRecord[] = [];
    let first: LogMark | null = null;
    let last: LogMark | null = null;
    const search = query.search ?? this.#search;
    const all: LogQuery = { format: "json", cursors: true, ...query, ...(search === "" ? {} : { search }) };
    for await (const message of readLogMessages(await this.#read(all, signal), signal)) {
      if ("message" in message) records.push(message);
      else {
        first ??= message;
        last = message;
      }
    }
    signal.throwIfAborted();
    if (first === null || last === null) throw new Error("The answer has no places: the server is of another release.");
    return { records, first, last };
  }

  /** Streams from the end of the window, or from the end of the log. */
  async #follow(isFresh: boolean): Promise<void> {
    const signal = this.#begin();
    let isNew = isFresh || this.#window.end === "";
    if (isNew) this.#show({ state: "reading", error: null, isTargetGone: false });
    for (let pauseMs = PAUSE_FIRST_MS; !signal.aborted; pauseMs = Math.min(pauseMs * 2, PAUSE_MAX_MS)) {
      const where = isNew ? { tail: TAIL } : { after: this.#window.end };
      const search = this.#search === "" ? {} : { search: this.#search };
      try {
        const answer = await this.#read({ format: "json", cursors: true, follow: true, ...where, ...search }, signal);
        for await (const message of readLogMessages(answer, signal)) {
          if (signal.aborted) return;
          pauseMs = PAUSE_FIRST_MS;
          if (!isNew && this.#view.state !== "following")
            this.#show({ state: "following", error: null, hasMore: false });
          if ("message" in message) this.#window.append(message);
          else if (isNew) {
            isNew = false;
            this.#window = new LogWindow(message.cursor);
            const { edge } = message;
            const start = edge === "start" || edge === "trimmed" ? edge : "more";
            this.#show({ start, state: "following", hasMore: false, jump: this.#view.jump + 1, target: null });
          } else {
            this.#add(message);
            this.#window.mark(message.cursor);
          }
          this.#showSoon();
        }
        if (!signal.aborted) this.#show({ state: "waiting", error: null });
      } catch (error) {
        if (signal.aborted) return;
        this.#show({ state: "waiting", error: error instanceof FlotillaError && error.status === 0 ? null : error });
        if (error instanceof FlotillaError && error.status >= 400 && error.status < 500) return;
      }
      await pause(pauseMs);
    }
  }

  /** A hidden page has no stream: it continues when it is seen. */
  #sleep(): void {
    this.#begin();
    this.#take();
    this.#show({ state: "waiting" });
  }

  #add({ isCut, cursor }: LogMark): void {
    if (isCut !== true) return;
    const message = "Lines are missing here: they were removed before they could be read.";
    this.#window.append({ timestamp: "", level: "info", message, source: "node", cursor: `gap ${cursor}` }, "gap");
  }

  #showSoon(): void {
    if (this.#stopShowing !== null) return;
    this.#stopShowing = after(Math.max(0, this.#shownAt + SHOW_MS - now()), () => this.#take());
  }

  /** Shows what has arrived. */
  #take(): void {
    this.#stopShowing?.();
    this.#stopShowing = null;
    this.#shownAt = now();
    const isTrimmed = this.#view.state === "following" && this.#window.trimStart();
    this.#show(isTrimmed ? { start: "more" } : {});
  }

  #show(change: Partial<LogView>): void {
    // The array is shared; its length and ends are what a view is of.
    this.#view = { ...this.#view, ...change, lines: this.#window.lines };
    for (const listener of this.#listeners) listener();
  }
}

const isAt =
  (cursor: string) =>
  (line: LogLine): boolean =>
    line.cursor === cursor;

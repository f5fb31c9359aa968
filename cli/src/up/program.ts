/**
 * One program that `flotilla up` keeps running as a child process: the server or the node.
 *
 * Always:
 * - The child has an IPC channel on its standard input and ends itself when that closes, so nothing outlives
 *   a killed `up`.
 * - The child runs in its own session, so that Ctrl-C in the terminal reaches only `up`, which then stops its
 *   programs in order.
 * - A child that ends unexpectedly is restarted after a pause that doubles each time, with a message. A
 *   failed first start is not repeated: it fails `up`.
 *
 * The channel is on standard input because sudo closes every descriptor above 2.
 */
import { type ChildProcess, spawn } from "node:child_process";
import type { Clock } from "@flotilla/base/clock";
import { ownMessageOf } from "@flotilla/base/errors";
import { Failure } from "../failure.ts";

export interface ProgramSpec {
  /** Name in messages: `the server`. */
  readonly name: string;
  readonly command: readonly [program: string, ...operands: string[]];
  readonly environment: Readonly<Record<string, string>>;
  /** The message that says the child is ready. */
  readonly readyKind: ReadyMessage["kind"];
  /** The destination of its output: a file's descriptor, or this process's standard error. */
  readonly log: number | "inherit";
  /** False for sudo, which remembers a password only for the terminal it was typed in. */
  readonly hasOwnSession: boolean;
  /** Asked before each restart: why it will fail, for the user; null when nothing is in the way. */
  readonly hindrance?: () => string | null;
}

/** The child's message when it is ready. */
export type ReadyMessage =
  | {
      readonly kind: "listening";
      readonly url: string;
      /** The socket on which it listens for the node of this host; null: only at its url. */
      readonly nodeSocket: string | null;
      readonly adminKey: string | null;
    }
  | { readonly kind: "ready" };

const PAUSE_FIRST_MS = 500;
const PAUSE_MAX_MS = 30_000;
/** The database needs up to 7 s when it cannot stop in order. */
const HURRY_MS = 12_000;
/** A child that has run for this long before it ends gets the shortest pause again. */
const STEADY_MS = 60_000;

export class Program {
  readonly #spec: ProgramSpec;
  readonly #clock: Clock;
  readonly #report: (line: string) => void;
  readonly #stopping = new AbortController();
  readonly #hurrying = new AbortController();
  #environment: Readonly<Record<string, string>>;
  #child: ChildProcess | null = null;
  #kept: Promise<void> = Promise.resolve();

  constructor(spec: ProgramSpec, options: { clock: Clock; report: (line: string) => void }) {
    this.#spec = spec;
    this.#environment = spec.environment;
    this.#clock = options.clock;
    this.#report = options.report;
  }

  /**
   * Starts it and waits until it is ready; from then on it is kept running. Throws a Failure when it ends
   * before.
   */
  async start(): Promise<ReadyMessage> {
    const run = this.#spawn();
    const ready = await Promise.race([run.ready, run.ended]);
    if (typeof ready === "string") throw new Failure(`${this.#spec.name} did not start: it ${ready}`);
    this.#kept = this.#keep(run.ended);
    return ready;
  }

  /** Adds variables for later starts. */
  remember(environment: Readonly<Record<string, string>>): void {
    this.#environment = { ...this.#environment, ...environment };
  }

  /** Asks it to end, and kills it after `graceMs`. Resolves when it has ended. */
  async stop(graceMs: number): Promise<void> {
    this.#stopping.abort();
    const child = this.#child;
    if (child !== null) {
      const gone = new AbortController();
      child.once("exit", () => gone.abort());
      terminate(child);
      const startedAt = this.#clock.monotonic();
      await this.#clock.sleep(graceMs, AbortSignal.any([gone.signal, this.#hurrying.signal]));
      const leftMs = startedAt + graceMs - this.#clock.monotonic();
      if (this.#hurrying.signal.aborted) await this.#clock.sleep(Math.min(HURRY_MS, leftMs), gone.signal);
      if (!gone.signal.aborted) {
        const spentS = Math.round((this.#clock.monotonic() - startedAt) / 10) / 100;
        this.#report(`${this.#spec.name} did not end within ${spentS} s and is killed`);
        child.kill("SIGKILL");
      }
    }
    await this.#kept;
  }

  /** Asks again, so that it ends without waiting for running work, and kills it after HURRY_MS. */
  hurry(): void {
    this.#stopping.abort();
    if (this.#child === null || this.#hurrying.signal.aborted) return;
    terminate(this.#child);
    this.#hurrying.abort();
  }

  async #keep(firstEnd: Promise<string>): Promise<void> {
    let pauseMs = PAUSE_FIRST_MS;
    let end = firstEnd;
    for (;;) {
      const startedAt = this.#clock.monotonic();
      const how = await end;
      if (this.#stopping.signal.aborted) return;
      if (this.#clock.monotonic() - startedAt >= STEADY_MS) pauseMs = PAUSE_FIRST_MS;
      this.#report(`${this.#spec.name} ${how}; it is restarted in ${pauseMs / 1000} s`);
      const hindrance = this.#spec.hindrance?.() ?? null;
      if (hindrance !== null) this.#report(hindrance);
      await this.#clock.sleep(pauseMs, this.#stopping.signal);
      if (this.#stopping.signal.aborted) return;
      pauseMs = Math.min(pauseMs * 2, PAUSE_MAX_MS);
      const run = this.#spawn();
      end = run.ended;
      const ready = await Promise.race([run.ready, run.ended]);
      if (typeof ready !== "string") this.#report(`${this.#spec.name} runs again`);
    }
  }

  #spawn(): { readonly ready: Promise<ReadyMessage>; readonly ended: Promise<string> } {
    let child: ChildProcess;
    try {
      child = this.#run();
    } catch (error) {
      // Node throws what the system answers, such as ENOMEM, except for the few errors that it makes an event
      // of.
      return { ready: new Promise(() => {}), ended: Promise.resolve(`could not be run: ${ownMessageOf(error)}`) };
    }
    this.#child = child;
    const ready = new Promise<ReadyMessage>((resolve) => {
      child.on("message", (message: ReadyMessage) => {
        if (message?.kind === this.#spec.readyKind) resolve(message);
      });
    });
    const ended = new Promise<string>((resolve) => {
      const end = (how: string): void => {
        if (this.#child === child) this.#child = null;
        resolve(how);
      };
      // A signal that may not be sent to a process of sudo is also an error event, and does not mean that the
      // child ended.
      child.on("error", (error) => {
        if (child.pid === undefined) end(`could not be run: ${error.message}`);
      });
      child.once("exit", (code, signal) =>
        end(signal === null ? `ended with exit code ${code}` : `was ended by ${signal}`),
      );
    });
    return { ready, ended };
  }

  #run(): ChildProcess {
    const [program, ...operands] = this.#spec.command;
    const { log } = this.#spec;
    return spawn(program, operands, {
      env: this.#environment,
      // Logs are on standard error; standard output is for users who start a program directly.
      stdio: log === "inherit" ? ["ipc", "ignore", "inherit"] : ["ipc", log, log],
      detached: this.#spec.hasOwnSession,
    });
  }
}

/**
 * Sends a signal where permitted; a child that sudo started as another user sees the channel close instead.
 */
function terminate(child: ChildProcess): void {
  if (!child.kill("SIGTERM") && child.connected) child.disconnect();
}

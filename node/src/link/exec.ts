/**
 * One running command, or one connection to a port of the guest, on the link: frames of an HTTP request ↔ a
 * GuestExec.
 *
 * On the hot path of every exec: no promise and no timer per chunk, one copy (the frame's), and at most one
 * write per turn of the event loop (exec-output.ts). The response's head is sent with the first frame, or
 * alone after HEAD_DELAY_MS if the command is silent, because callers wait for it.
 *
 * Always:
 * - Exactly one exit or failure frame is sent, as the last frame. A request without a start frame fails after
 *   MESSAGE_MS.
 * - When the caller disconnects, the command is killed with all its descendants (with a terminal: after
 *   SIGHUP and a grace period), unless it runs in the background.
 * - A caller that does not read pauses the command's output. A command that does not read pauses the request.
 *
 * If the node agent dies or stops in the middle, the caller sees a body without an exit frame. A command with
 * a resume key continues in the guest, and the caller resumes it through the next agent (decision 53). The
 * guest ends any other when the next agent connects.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Readable, Writable } from "node:stream";
import type { Clock, Timer } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import { EXIT_CODE_TIMEOUT } from "@flotilla/contract/limits";
import type { ExecExit, ExecResume, ExecStart, LinkError } from "@flotilla/contract/link/link";
import {
  readConnectionStart,
  readTaken,
  readExecResume,
  readExecStart,
  readSignalRequest,
  readTerminalSize,
} from "@flotilla/contract/link/generated";
import { InvalidMessage } from "@flotilla/contract/link/read";
import {
  encodeLinkFrame,
  LinkDecoder,
  type LinkFrame,
  type LinkFrameType,
  RESUMES_HEADER,
} from "@flotilla/contract/link/frames";
import { type Guest, GuestBusy, type GuestExec } from "../guest/guest.ts";
import type { VmNetwork } from "../network/vm-network.ts";
import { lateMessage, MESSAGE_MS } from "./bodies.ts";
import { openConnection } from "./connections.ts";
import { LinkOutput } from "./exec-output.ts";

const HEAD_DELAY_MS = 50;
/** How often an empty frame checks the connection of a caller whose input is paused. */
const CALLER_CHECK_MS = 2_000;
/** Max unread input of a connection; a server does not send so much. */
const UNREAD_BYTES_MAX = 1024 * 1024;
/**
 * One for all: to make one with its stack takes longer than all else that an abort does, and a stack keeps
 * what it names in memory.
 */
const GONE = new DOMException("the caller has gone, or was answered", "AbortError");
const NO_OUTPUT = encodeLinkFrame("stderr");
/** A guest that does not report the end of a killed command within this time counts as unreachable. */
const KILL_DEADLINE_MS = 10_000;
/** Time for a shell to save its history, and for its jobs to end, after a hang-up. */
const HANG_UP_GRACE_MS = 2_000;

export interface LinkExecOptions {
  readonly guest: Guest;
  readonly clock: Clock;
  /** Why the guest accepts no command at this moment; null: it does. Absent: it always does. */
  readonly obstacle?: () => LinkError | null;
  /** Calls back when its agent does not answer any more. Returns what cancels that. Absent: never. */
  readonly onSilent?: (end: (silence: LinkError) => void) => () => void;
  /** Whether this agent stops, and the next one serves its callers. Absent: never. */
  readonly isStopping?: () => boolean;
  /** Whether the machine leaves with its memory, and its commands continue there. Absent: never. */
  readonly isLeaving?: () => boolean;
  /** The request is a connection to a port of this network. Absent: it is a command. */
  readonly connectsIn?: { readonly network: VmNetwork | null };
}

/** What is known of the command, from a start or a resume frame. */
type Begun = Pick<ExecStart, "hasStdin" | "terminal" | "isBackground" | "timeoutMs" | "resumeKey">;

/** Serves the request until the command has ended or the caller disconnects. */
export function serveExec(request: IncomingMessage, response: ServerResponse, options: LinkExecOptions): void {
  new LinkExec(request, response, options).serve();
}

class LinkExec {
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  readonly #output: LinkOutput;
  readonly #guest: Guest;
  readonly #clock: Clock;
  readonly #obstacle: () => LinkError | null;
  readonly #cancelOnSilent: () => void;
  readonly #decoder = new LinkDecoder();
  readonly #isStopping: () => boolean;
  readonly #isLeaving: () => boolean;
  readonly #connectsIn: LinkExecOptions["connectsIn"];
  /** Aborted when the caller of a connection has disconnected. */
  readonly #gone = new AbortController();
  /** Whether the guest keeps the connection. */
  #isKeptConnection = false;
  /** How much of its input the guest has, which the caller was not told. */
  #inputTaken: number | null = null;
  #start: Begun | null = null;
  #exec: GuestExec | null = null;
  #exit: ExecExit | null = null;
  #startedAt = 0;
  #timers: Timer[] = [];
  #isFinished = false;
  /** The next check of a caller whose input is paused. */
  #callerCheck: Timer | null = null;
  #hasTimedOut = false;

  constructor(
    request: IncomingMessage,
    response: ServerResponse,
    {
      guest,
      clock,
      obstacle = () => null,
      onSilent = () => () => undefined,
      isStopping = () => false,
      isLeaving = () => false,
      connectsIn,
    }: LinkExecOptions,
  ) {
    this.#request = request;
    this.#response = response;
    this.#guest = guest;
    this.#clock = clock;
    this.#obstacle = obstacle;
    this.#cancelOnSilent = onSilent((silence) => this.#fail(silence));
    this.#isStopping = isStopping;
    this.#isLeaving = isLeaving;
    this.#connectsIn = connectsIn;
    const onBlocked = (isBlocked: boolean): void => this.#onBlocked(isBlocked);
    this.#output = new LinkOutput(response, { clock, gathers: connectsIn === undefined, onBlocked });
  }

  serve(): void {
    const resumes = this.#guest.keepsCommands === true ? { [RESUMES_HEADER]: "1" } : {};
    this.#response.writeHead(200, { "content-type": "application/octet-stream", ...resumes });
    this.#timers.push(this.#clock.timer(HEAD_DELAY_MS, () => this.#onHeadDelay()));
    this.#request.on("data", (chunk: Buffer) => this.#onRequestData(chunk));
    this.#request.on("end", () => this.#onRequestEnd());
    this.#response.on("close", () => this.#onClose());
    this.#response.on("error", () => this.#onClose());
  }

  #onHeadDelay(): void {
    this.#response.flushHeaders();
    if (this.#start !== null) return;
    const late = (): void => {
      if (this.#start === null) this.#fail({ code: "invalid", message: messageOf(lateMessage()) });
    };
    this.#timers.push(this.#clock.timer(MESSAGE_MS, late));
  }

  #onRequestData(chunk: Buffer): void {
    if (this.#isFinished) return;
    try {
      for (const frame of this.#decoder.push(chunk)) this.#onFrame(frame);
    } catch (error) {
      this.#fail({ code: "invalid", message: messageOf(error) });
    }
  }

  #onRequestEnd(): void {
    if (this.#exec === null) this.#fail({ code: "invalid", message: "the request ended before its start frame" });
    else this.#endStdin(this.#exec);
  }

  /** A second end() would create an Error with its stack each time. */
  #endStdin(exec: GuestExec): void {
    if (!exec.stdin.writableEnded) exec.stdin.end();
  }

  #onFrame({ type, payload }: LinkFrame): void {
    const exec = this.#exec;
    const isFirst = type === "start" || type === "resume";
    if (isFirst && this.#start !== null) throw new Error(`a second ${type} frame came`);
    if (type === "start" && this.#connectsIn !== undefined) return this.#onConnect(payload, this.#connectsIn);
    if (type === "start") return this.#onStart(execStart(parseJson(payload)));
    if (type === "resume") return this.#onResume(readExecResume(parseJson(payload)));
    if (exec === null) throw new Error(`a ${type} frame came before the start frame`);
    switch (type) {
      case "stdin":
        if (this.#start?.hasStdin === true && exec.stdin.writable && !exec.stdin.write(payload)) this.#onFull(exec);
        break;
      case "stdinEnd":
        this.#endStdin(exec);
        break;
      case "taken":
        exec.outputTaken?.(readTaken(parseJson(payload)).stdoutBytes);
        break;
      case "resize":
        exec.resize(readTerminalSize(parseJson(payload)));
        break;
      case "signal":
        exec.signal(readSignalRequest(parseJson(payload)).signal);
        break;
      default:
        throw new Error(`a ${type} frame does not come from a server`);
    }
  }

  /**
   * The guest does not read. A connection's request is read on, because the output that the guest waits to
   * send may depend on its next frame; the server sends little more than this before the guest has it.
   */
  #onFull({ stdin }: GuestExec): void {
    if (!this.#isKeptConnection || stdin.writableLength > UNREAD_BYTES_MAX) this.#pause();
  }

  /** Stops reading the request: the command does not read its input. */
  #pause(): void {
    this.#request.pause();
    this.#callerCheck ??= this.#clock.timer(CALLER_CHECK_MS, () => this.#checkCaller());
  }

  /** A paused request does not show that its caller has disconnected; a write does. */
  #checkCaller(): void {
    this.#callerCheck = null;
    if (this.#isFinished || !this.#request.isPaused()) return;
    this.#send(NO_OUTPUT);
    this.#pause();
  }

  /**
   * Whether its guest is about to be paused. What has not started may be sent again, and is refused with
   * that.
   */
  #refusesToStart(): boolean {
    if (!this.#isLeaving()) return false;
    this.#fail({ code: "not_running", message: "the machine moves to another node" });
    return true;
  }

  #onConnect(payload: Uint8Array, { network }: NonNullable<LinkExecOptions["connectsIn"]>): void {
    const { port, resumeKey } = readConnectionStart(parseJson(payload));
    if (this.#refusesToStart()) return;
    const begun = { hasStdin: true, terminal: null, isBackground: false, timeoutMs: null, resumeKey };
    this.#start = begun;
    this.#startedAt = this.#clock.monotonic();
    const opener = { guest: this.#guest, network, clock: this.#clock };
    void openConnection(opener, { port, resumeKey }, this.#gone.signal).then((opened) => {
      if ("code" in opened) return this.#isLeaving() ? void this.#refusesToStart() : this.#fail(opened);
      const { exec, isKept } = opened;
      if (this.#isFinished) {
        exec.kill();
        return exec.release?.();
      }
      this.#isKeptConnection = isKept;
      this.#send(encodeLinkFrame("resumed", JSON.stringify({ stdinBytes: 0, isKept })));
      this.#follow(exec, begun);
    });
  }

  #onStart(start: ExecStart): void {
    if (this.#refusesToStart()) return;
    const obstacle = this.#obstacle();
    if (obstacle !== null) return this.#fail(obstacle);
    this.#start = start;
    this.#startedAt = this.#clock.monotonic();
    const exec = this.#begin(start);
    if (exec !== null) this.#follow(exec, start);
  }

  /**
   * The command began through an earlier agent. Its output comes after the frame that says how much input it
   * has.
   */
  #onResume(resume: ExecResume): void {
    const { resumeKey, stdoutBytes, stderrBytes, elapsedMs, timeoutMs, terminal } = resume;
    this.#start = { ...resume, isBackground: false };
    this.#startedAt = this.#clock.monotonic() - elapsedMs;
    const refuse = (error: unknown): void =>
      this.#isLeaving() ? this.#leave() : this.#fail({ code: "not_found", message: messageOf(error) });
    try {
      const request = { resumeKey, stdoutOffset: stdoutBytes, stderrOffset: stderrBytes };
      const isConnection = this.#connectsIn !== undefined;
      const resumed = isConnection ? this.#guest.resumeConnection?.(request) : this.#guest.resume?.(request);
      if (resumed === undefined) return refuse(new Error("the guest resumes no command"));
      this.#exec = resumed.exec;
      resumed.stdinOffset.then((stdinBytes) => {
        if (this.#isFinished) return;
        this.#isKeptConnection = isConnection;
        this.#send(encodeLinkFrame("resumed", JSON.stringify({ stdinBytes, ...(isConnection && { isKept: true }) })));
        if (terminal !== null) resumed.exec.resize(terminal);
        const left = timeoutMs === null ? null : Math.max(1, timeoutMs - elapsedMs);
        this.#follow(resumed.exec, { ...resume, isBackground: false, timeoutMs: left });
      }, refuse);
    } catch (error) {
      refuse(error);
    }
  }

  #follow(exec: GuestExec, { hasStdin, isBackground, terminal, timeoutMs }: Begun): void {
    this.#exec = exec;
    if (hasStdin) this.#resumeFor(exec.stdin);
    if (this.#connectsIn !== undefined) this.#acknowledgeInput(exec);
    this.#forward("stdout", exec.stdout);
    this.#forward("stderr", exec.stderr);
    if (timeoutMs !== null && !isBackground) {
      this.#timers.push(this.#clock.timer(timeoutMs, () => this.#onTimeout()));
    }
    exec.pid.then(
      // A caller that opens a terminal waits for it, and the terminal may be silent.
      () => (terminal === null ? undefined : this.#response.flushHeaders()),
      () => undefined,
    );
    exec.exit.then(
      ({ exitCode }) => this.#onExit(exec, exitCode),
      (error: unknown) => {
        if (this.#isKept && this.#isLeaving()) this.#leave();
        else this.#fail({ code: "guest_unreachable", message: messageOf(error) });
      },
    );
  }

  /** Continues with the request when there is room for its input, or when that is not wanted any more. */
  #resumeFor(stdin: Writable): void {
    const resume = (): void => void this.#request.resume();
    // A command may close its input, or end, while more input arrives.
    stdin.on("drain", resume).on("error", resume).on("close", resume);
  }

  /**
   * Acknowledges input that the guest has, so that the server need not keep it. A guest may take its input in
   * any number of pieces: all that came with one read of its channel is one message to the server.
   */
  #acknowledgeInput(exec: GuestExec): void {
    exec.onInputTaken?.((stdinBytes) => {
      if (this.#inputTaken === null) process.nextTick(() => this.#sendInputTaken());
      this.#inputTaken = stdinBytes;
    });
  }

  /** A caller that does not read gets the last word later. */
  #sendInputTaken(): void {
    if (this.#inputTaken === null || this.#output.isBlocked) return;
    this.#send(encodeLinkFrame("resumed", JSON.stringify({ stdinBytes: this.#inputTaken })));
    this.#inputTaken = null;
  }

  /** Whether the command outlives its channel to the guest. */
  get #isKept(): boolean {
    if (this.#connectsIn !== undefined) return this.#isKeptConnection;
    return this.#start?.resumeKey !== undefined && this.#guest.keepsCommands === true;
  }

  /**
   * null: the guest accepts no command now, and the failure was sent. Throws a RangeError when the request is
   * too large.
   */
  #begin(start: ExecStart): GuestExec | null {
    const { argv, cwd, env, user, hasStdin, terminal, isBackground, resumeKey } = start;
    const needsPid = terminal !== null || isBackground;
    const name = resumeKey === undefined ? {} : { resumeKey };
    try {
      return this.#guest.exec({ argv, cwd, env, user, hasStdin, terminal, isBackground, needsPid, ...name });
    } catch (error) {
      if (error instanceof RangeError) throw error;
      this.#fail({ code: error instanceof GuestBusy ? "busy" : "guest_unreachable", message: messageOf(error) });
      return null;
    }
  }

  #forward(type: LinkFrameType, output: Readable): void {
    output.on("data", (chunk: Buffer) => {
      if (!this.#isFinished) this.#output.add(type, chunk);
      if (this.#exit !== null) this.#finishOnceDelivered();
    });
    output.on("error", () => undefined);
  }

  #send(frame: Buffer): void {
    if (!this.#isFinished) this.#output.send(frame);
  }

  #onBlocked(isBlocked: boolean): void {
    for (const output of [this.#exec?.stdout, this.#exec?.stderr]) {
      if (isBlocked) output?.pause();
      else output?.resume();
    }
    if (!isBlocked) this.#sendInputTaken();
  }

  #onExit(exec: GuestExec, exitCode: number): void {
    const durationMs = Math.round(this.#clock.monotonic() - this.#startedAt);
    const settle = (pid: number | null): void => {
      this.#exit = {
        exitCode: this.#hasTimedOut ? EXIT_CODE_TIMEOUT : exitCode,
        durationMs,
        hasTimedOut: this.#hasTimedOut,
        pid,
      };
      this.#finishOnceDelivered();
    };
    if (this.#start?.isBackground === true) exec.pid.then(settle, () => settle(null));
    else settle(null);
  }

  /** The exit frame follows all output of the command, also output that is queued for a slow reader. */
  #finishOnceDelivered(): void {
    const exec = this.#exec;
    if (this.#exit === null || exec === null) return;
    if (exec.stdout.readableLength > 0 || exec.stderr.readableLength > 0) return;
    this.#finish("exit", this.#exit);
  }

  #onTimeout(): void {
    this.#hasTimedOut = true;
    this.#kill();
    this.#expectEnd();
  }

  /**
   * While the caller does not read, or the guest is paused, the end cannot arrive, so the deadline is
   * extended.
   */
  #expectEnd(): void {
    this.#timers.push(
      this.#clock.timer(KILL_DEADLINE_MS, () => {
        if (this.#output.isBlocked || this.#isLeaving()) this.#expectEnd();
        else this.#failUnanswered();
      }),
    );
  }

  #failUnanswered(): void {
    const message = "the guest does not report the end of the killed command";
    this.#fail(this.#obstacle() ?? { code: "guest_unreachable", message });
  }

  #fail(failure: LinkError): void {
    if (this.#isFinished) return;
    if (this.#exit === null && this.#start?.isBackground !== true) this.#kill();
    this.#finish("failure", failure);
  }

  #finish(type: "exit" | "failure", message: ExecExit | LinkError): void {
    if (this.#isFinished) return;
    this.#release();
    this.#output.end(encodeLinkFrame(type, JSON.stringify(message)));
    // Remaining input is read and dropped, so that the connection can serve the next request.
    this.#request.resume();
  }

  /** Ends the answer without an exit frame: the caller continues the command where the machine is next. */
  #leave(): void {
    if (this.#isFinished) return;
    this.#release();
    this.#output.end();
    this.#request.resume();
  }

  #onClose(): void {
    const isLeft = this.#isStopping() && this.#isKept;
    // The whole answer has been given to the kernel, which delivers it also when this process dies, or it has
    // no reader.
    if (!isLeft) this.#exec?.release?.();
    if (this.#isFinished) return;
    this.#release();
    this.#output.drop();
    if (isLeft) return;
    if (this.#start?.isBackground !== true) this.#kill();
    // The output is dropped, but the channel's credit must flow.
    this.#exec?.stdout.resume();
    this.#exec?.stderr.resume();
  }

  /** A command with a terminal gets a hang-up first, as shells expect. */
  #kill(): void {
    const hasTerminal = this.#start !== null && this.#start.terminal !== null;
    this.#exec?.kill(hasTerminal ? HANG_UP_GRACE_MS : 0);
  }

  #release(): void {
    this.#isFinished = true;
    this.#cancelOnSilent();
    this.#gone.abort(GONE);
    for (const timer of this.#timers) timer.cancel();
    this.#callerCheck?.cancel();
    this.#timers = [];
  }
}

/** Reads the first frame. Throws InvalidMessage. */
function execStart(value: unknown): ExecStart {
  const start = readExecStart(value);
  if ((start.argv[0] ?? "") === "") throw new InvalidMessage("argv", "a program");
  return start;
}

function parseJson(payload: Uint8Array): unknown {
  return JSON.parse(Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength).toString("utf8"));
}

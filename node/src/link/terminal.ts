/**
 * One client at a kept terminal, on the link: frames of an HTTP request ↔ a place at the terminal.
 *
 * Always:
 * - The first frame begins a terminal, continues one or reads one; `resumed`, or a failure, is the first
 *   frame of the answer.
 * - A request that breaks leaves the terminal for a minute; `end` ends it. The end of a program is sent, and
 *   kept until one of both.
 * - The answer ends without a last frame when the machine continues elsewhere: so does the client.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Clock, Timer } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { ExecExit, ExecStart, LinkError } from "@flotilla/contract/link/link";
import {
  readExecResume,
  readExecStart,
  readTaken,
  readTerminalSize,
  readTerminalWatch,
} from "@flotilla/contract/link/generated";
import { encodeLinkFrame, LinkDecoder, type LinkFrame } from "@flotilla/contract/link/frames";
import { InvalidMessage } from "@flotilla/contract/link/read";
import type { ExecResume, ExecResumed } from "@flotilla/contract/link/streams";
import { type Guest, GuestBusy, type GuestExec } from "../guest/guest.ts";
import { type Place, Terminal, type TerminalClient, type TerminalParts } from "../terminals/terminal.ts";
import { TERMINALS_MAX, type Terminals } from "../terminals/terminals.ts";
import { lateMessage, MESSAGE_MS } from "./bodies.ts";
import { LinkOutput } from "./exec-output.ts";

export interface LinkTerminalOptions {
  readonly machineId: string;
  readonly terminals: Terminals;
  readonly guest: Guest;
  readonly clock: Clock;
  /** Why the guest accepts no command at this moment; null: it does. */
  readonly obstacle: () => LinkError | null;
  readonly onSilent: TerminalParts["onSilent"];
  readonly isStopping: () => boolean;
  readonly isLeaving: () => boolean;
}

const ENDED = "the terminal has ended: its program has, or no client came back to it within a minute";

/** Serves the request until the terminal has ended, or the client's connection. */
export function serveTerminal(request: IncomingMessage, response: ServerResponse, options: LinkTerminalOptions): void {
  new LinkTerminal(request, response, options).serve();
}

class LinkTerminal implements TerminalClient {
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  readonly #options: LinkTerminalOptions;
  readonly #output: LinkOutput;
  readonly #decoder = new LinkDecoder();
  #first: Timer | null = null;
  #terminal: Terminal | null = null;
  #place: Place | null = null;
  #hasBegun = false;
  #isFinished = false;

  constructor(request: IncomingMessage, response: ServerResponse, options: LinkTerminalOptions) {
    this.#request = request;
    this.#response = response;
    this.#options = options;
    const onBlocked = (isBlocked: boolean): void => {
      if (!isBlocked && this.#place !== null) this.#terminal?.unblocked(this.#place);
    };
    this.#output = new LinkOutput(response, { clock: options.clock, gathers: true, onBlocked });
  }

  serve(): void {
    this.#response.writeHead(200, { "content-type": "application/octet-stream" });
    this.#first = this.#options.clock.timer(MESSAGE_MS, () =>
      this.end({ code: "invalid", message: messageOf(lateMessage()) }),
    );
    this.#request.on("data", (chunk: Buffer) => this.#onData(chunk));
    this.#response.on("close", () => this.#onClose());
    this.#response.on("error", () => this.#onClose());
    this.#request.on("error", () => undefined);
  }

  get isBlocked(): boolean {
    return this.#output.isBlocked;
  }

  position(position: ExecResumed): void {
    if (!this.#isFinished) this.#output.send(encodeLinkFrame("resumed", JSON.stringify(position)));
  }

  output(piece: Buffer): void {
    if (!this.#isFinished) this.#output.add("stdout", piece);
  }

  exit(exit: ExecExit): void {
    if (!this.#isFinished) this.#output.send(encodeLinkFrame("exit", JSON.stringify(exit)));
  }

  end(failure: LinkError | null): void {
    if (this.#isFinished) return;
    this.#finish();
    if (failure === null) this.#output.end();
    else this.#output.end(encodeLinkFrame("failure", JSON.stringify(failure)));
    // What still comes is dropped.
    this.#request.resume();
  }

  #onData(chunk: Buffer): void {
    if (this.#isFinished) return;
    try {
      for (const frame of this.#decoder.push(chunk)) this.#onFrame(frame);
    } catch (error) {
      const failure: LinkError = { code: "invalid", message: messageOf(error) };
      this.#leave();
      this.end(failure);
    }
  }

  #onFrame({ type, payload }: LinkFrame): void {
    if (this.#isFinished) return;
    const isFirst = type === "start" || type === "resume" || type === "watch";
    if (isFirst === this.#hasBegun) throw new Error(`a ${type} frame came ${isFirst ? "again" : "first"}`);
    if (isFirst) {
      this.#hasBegun = true;
      this.#first?.cancel();
      return this.#begin(type, parseJson(payload));
    }
    const [terminal, place] = [this.#terminal, this.#place];
    if (terminal === null || place === null) throw new Error(`a ${type} frame came before the terminal was there`);
    if (place.isReader) throw new Error("a reader sends nothing");
    switch (type) {
      case "stdin":
        return terminal.type(place, payload);
      case "resize":
        return terminal.resize(place, readTerminalSize(parseJson(payload)));
      case "taken":
        return terminal.acknowledge(place, readTaken(parseJson(payload)).stdoutBytes);
      case "end":
        return terminal.done(place);
      default:
        throw new Error(`a ${type} frame does not come from a server`);
    }
  }

  #begin(type: "start" | "resume" | "watch", message: unknown): void {
    const { machineId, terminals } = this.#options;
    if (type === "start") return this.#start(readExecStart(message));
    if (type === "resume") return void this.#resume(readExecResume(message));
    const { resumeKey, stdoutBytes } = readTerminalWatch(message);
    const terminal = terminals.find(machineId, resumeKey);
    if (terminal === undefined) return this.end({ code: "not_found", message: ENDED });
    const place = terminal.watch(this, stdoutBytes);
    if (place === null) return this.end({ code: "busy", message: "as many watch the terminal as may" });
    this.#take(terminal, place);
  }

  #start(start: ExecStart): void {
    const { guest, machineId, terminals, isLeaving, obstacle } = this.#options;
    const { resumeKey, terminal: size, argv, cwd, env, user, timeoutMs } = start;
    if (resumeKey === undefined || size === null || (argv[0] ?? "") === "")
      throw new InvalidMessage("start", "a program with a terminal and a key");
    if (isLeaving()) return this.end({ code: "not_running", message: "the machine moves to another node" });
    const why = obstacle();
    if (why !== null) return this.end(why);
    if (terminals.find(machineId, resumeKey) !== undefined)
      return this.end({ code: "invalid", message: "the machine has a terminal of this id" });
    if (!terminals.makeRoom(machineId))
      return this.end({ code: "busy", message: `the machine has ${TERMINALS_MAX} kept terminals` });
    let exec: GuestExec;
    try {
      const how = { hasStdin: true, isBackground: false, needsPid: true, resumeKey };
      exec = guest.exec({ argv, cwd, env, user, terminal: size, ...how });
    } catch (error) {
      if (error instanceof RangeError) throw error;
      return this.end({ code: error instanceof GuestBusy ? "busy" : "guest_unreachable", message: messageOf(error) });
    }
    const begun = { offsets: { stdoutBytes: 0, stdinBytes: 0 }, elapsedMs: 0, timeoutMs };
    const terminal = this.#made(resumeKey, exec, begun);
    // Its caller waits for it, and it may be silent. One that cannot be run says why in its output.
    const started = (): void => this.#attach(terminal, 0);
    exec.pid.then(started, started);
  }

  async #resume(resume: ExecResume): Promise<void> {
    const { machineId, terminals, isLeaving } = this.#options;
    const { resumeKey, stdoutBytes, terminal: size } = resume;
    try {
      const terminal = await terminals.resume(machineId, resumeKey, () => this.#resumed(resume));
      this.#attach(terminal, stdoutBytes);
      if (size !== null && this.#place !== null) terminal.resize(this.#place, size);
    } catch {
      // Where the machine is next, the guest may have it.
      if (isLeaving()) this.end({ code: "not_running", message: "the machine moves to another node" });
      else this.end({ code: "not_found", message: ENDED });
    }
  }

  /** From the guest, which kept it when an earlier agent was lost. */
  async #resumed({ resumeKey, stdoutBytes, elapsedMs, timeoutMs }: ExecResume): Promise<Terminal> {
    const resumed = this.#options.guest.resume?.({ resumeKey, stdoutOffset: stdoutBytes, stderrOffset: 0 });
    if (resumed === undefined) throw new Error(ENDED);
    const stdinBytes = await resumed.stdinOffset;
    const offsets = { stdoutBytes, stdinBytes };
    return this.#made(resumeKey, resumed.exec, { offsets, elapsedMs, timeoutMs });
  }

  #made(key: string, exec: GuestExec, begun: Pick<TerminalParts, "offsets" | "elapsedMs" | "timeoutMs">): Terminal {
    const { clock, machineId, terminals, onSilent, isStopping, isLeaving } = this.#options;
    const continuesElsewhere = (): boolean => isStopping() || isLeaving();
    return terminals.add(
      machineId,
      key,
      (onGone) => new Terminal({ clock, exec, ...begun, continuesElsewhere, onSilent, onGone }),
    );
  }

  #attach(terminal: Terminal, offset: number): void {
    const place = terminal.attach(this, offset);
    // The caller may have left meanwhile.
    if (this.#isFinished) return terminal.lost(place);
    this.#take(terminal, place);
  }

  #take(terminal: Terminal, place: Place): void {
    this.#terminal = terminal;
    this.#place = place;
  }

  #leave(): void {
    const [terminal, place] = [this.#terminal, this.#place];
    this.#terminal = this.#place = null;
    if (terminal !== null && place !== null) terminal.lost(place);
  }

  #onClose(): void {
    this.#finish();
    this.#output.drop();
    this.#leave();
  }

  #finish(): void {
    this.#isFinished = true;
    this.#first?.cancel();
  }
}

function parseJson(payload: Uint8Array): unknown {
  return JSON.parse(Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength).toString("utf8"));
}

/**
 * The host's end of a guest channel: implements `Guest` over a byte stream to a guest agent.
 *
 * Owns the stream from the call on. contract/GUEST-PROTOCOL.md describes the protocol.
 *
 * Always:
 * - The guest is hostile: a protocol violation closes the channel with a reason, and the guest cannot make
 *   this process buffer more than the window of each stream.
 * - When the channel is lost, everything that waits for it ends: promises reject, readers of output get an
 *   error.
 * - Commands do not block each other: each stream has its own credit.
 * - A resumable command that has ended keeps its channel until it was released, because the guest keeps its
 *   output.
 *
 * A node agent that dies leaves an incomplete frame and unread answers. So a new connection first sends zeros
 * that complete any frame, then a hello with a nonce, and discards everything before the nonce is repeated.
 */
import { randomBytes } from "node:crypto";
import type { Duplex } from "node:stream";
import { type Clock, systemClock, type Timer } from "@flotilla/base/clock";
import { ReleasingMap } from "@flotilla/base/releasing-map";
import {
  CHANNELS_MAX,
  CONNECTION_WINDOW_BYTES,
  encodeFrame,
  encodeMessage,
  FRAME_PADDING_BYTES,
  type Frame,
  FrameDecoder,
  GUEST_FRAMES,
  GuestProtocolError,
  HOST_FRAMES,
  type HostFrameType,
} from "@flotilla/contract/guest/frame";
import { FieldReader, FieldWriter, GUEST_FILE_OPERATIONS } from "@flotilla/contract/guest/messages";
import type { BulkDisk, BulkWindow } from "./bulk-disk.ts";
import { overBulkDisk } from "./bulk-file.ts";
import { ClientExec } from "./client-exec.ts";
import { ClientKilled } from "./client-killed.ts";
import { configurationFields, environmentLines } from "./client-fields.ts";
import { type HelloAnswer, HelloSearch } from "./client-hello.ts";
import { ClientWorkload } from "./client-workload.ts";
import {
  type Guest,
  GuestBusy,
  type GuestConfiguration,
  type GuestConnectRequest,
  type GuestExec,
  type GuestExecRequest,
  type GuestFileRequest,
  type GuestHello,
  type GuestKilled,
  type GuestResumeRequest,
  type GuestWorkload,
  type GuestWorkloadRequest,
  type ResumedExec,
} from "./guest.ts";

export interface ConnectGuestOptions {
  /** Milliseconds to wait for the agent's answer: the guest may still be booting. */
  readonly helloTimeoutMs: number;
  /** Cancels connecting and destroys the stream. Has no effect once connected. */
  readonly signal?: AbortSignal;
  readonly clock?: Clock;
  /**
   * Resumable commands of an earlier host wait for `resume`. Absent: they end, as when a copy of a VM begins.
   */
  readonly keepsCommands?: boolean;
  /**
   * The guest is a copy of another machine's: its commands run on without their callers, and all its programs
   * stay stopped until it is configured as a copy. Absent: it is not.
   */
  readonly isClone?: boolean;
  /** Owned by the client from now on; null or absent: files are transferred over the channel. */
  readonly bulk?: BulkDisk | null;
}

/**
 * Max bytes queued for a guest that stopped reading. Above it, commands are refused; above 2×, the channel is
 * closed.
 */
const UNREAD_BYTES_MAX = 64 * 1024 * 1024;
const REQUESTS_MAX = 1024;
/** Releases are sent with the next command, or after this time. */
const RELEASE_MS = 1_000;
/**
 * How long a new connection does not use the bulk disk: after the hello, a worker of the previous host may
 * still finish a write to it.
 */
export const BULK_QUIET_MS = 30_000;

/**
 * Takes ownership of the stream and resolves when the agent has answered. Rejects and destroys the stream if
 * the agent does not answer in time or violates the protocol, or if the stream ends.
 */
export async function connectGuest(stream: Duplex, options: ConnectGuestOptions): Promise<Guest> {
  const clock = options.clock ?? systemClock;
  const { keepsCommands = false, isClone = false } = options;
  const client = new GuestClient(stream, clock, options.bulk ?? null);
  const cancel = (): void => client.lose("the caller cancelled the connection");
  const timer = clock.timer(options.helloTimeoutMs, () =>
    client.lose(`it did not answer within ${options.helloTimeoutMs} ms`),
  );
  options.signal?.addEventListener("abort", cancel, { once: true });
  try {
    if (options.signal?.aborted) cancel();
    await client.greet({ keepsCommands, isClone });
    return client;
  } finally {
    timer.cancel();
    options.signal?.removeEventListener("abort", cancel);
  }
}

interface Opening {
  readonly hasStdin: boolean;
  readonly windowBytes?: number;
  readonly takenFrom?: number;
  readonly isResumable?: boolean;
  readonly isResumed?: boolean;
}

const NOTHING = Buffer.alloc(0);

interface Pending {
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

/** The channels of commands, or those of connections. */
class ChannelRange {
  readonly max: number;
  /** Channels of an earlier host's commands, by key. */
  readonly kept: Map<string, number>;
  /** Ended and not released, oldest first. */
  readonly ended = new ReleasingMap<number, ClientExec>();
  /** Open, or ended and not released. */
  used = 0;
  readonly #first: number;
  #last = -1;

  constructor(first: number, max: number, kept = new Map<string, number>()) {
    this.#first = first;
    this.max = max;
    this.kept = kept;
  }

  get hasRoom(): boolean {
    return this.used - this.ended.size + this.kept.size < this.max;
  }

  get what(): string {
    return this.#first > CHANNELS_MAX ? "connections" : "commands";
  }

  next(): number {
    this.#last = (this.#last + 1) % this.max;
    return this.#first + this.#last;
  }

  isWaiting(channel: number): boolean {
    return this.ended.has(channel) || (this.kept.size > 0 && [...this.kept.values()].includes(channel));
  }
}

class GuestClient implements Guest {
  readonly closed: Promise<string>;
  received = 0;
  readonly #stream: Duplex;
  readonly #clock: Clock;
  /**
   * Limits padding: only a connecting host needs zeros; a guest that sends many would waste this process's
   * time.
   */
  readonly #decoder = new FrameDecoder(FRAME_PADDING_BYTES);
  readonly #search: HelloSearch;
  readonly #execs = new ReleasingMap<number, ClientExec>();
  #ofCommands = new ChannelRange(1, CHANNELS_MAX);
  #ofConnections = new ChannelRange(CHANNELS_MAX + 1, 0);
  #released: number[] = [];
  #releaseTimer: Timer | null = null;
  readonly #requests = new ReleasingMap<number, Pending>();
  readonly #onFrame = (frame: Frame): void => this.#receive(frame);
  #hello: HelloAnswer | undefined;
  #greeting: Pending | undefined;
  #lostBecause: string | undefined;
  #workload: ClientWorkload | undefined;
  readonly #killed: ClientKilled;
  readonly #bulk: BulkDisk | null;
  #bulkFromMs = 0;
  #lastRequest = 0;
  #isCorked = false;
  /** What waits until the guest's programs run again; null: they do. */
  #held: Buffer[] | null = null;
  #onClosed: (reason: string) => void = () => {};

  constructor(stream: Duplex, clock: Clock, bulk: BulkDisk | null) {
    this.#stream = stream;
    this.#clock = clock;
    this.#bulk = bulk;
    this.#search = new HelloSearch(randomBytes);
    const read = encodeFrame({ type: HOST_FRAMES.killedRead, channel: 0 }, NOTHING);
    this.#killed = new ClientKilled(clock, () => this.#write(read));
    this.closed = new Promise((resolve) => {
      this.#onClosed = resolve;
    });
  }

  get hello(): GuestHello {
    if (this.#hello === undefined) throw new Error("the guest agent has not answered yet");
    return this.#hello;
  }

  /** Sends the hello and resolves with the answer. */
  greet(how: { readonly keepsCommands: boolean; readonly isClone: boolean }): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.#lostBecause !== undefined) return reject(this.#lostError());
      this.#greeting = { resolve, reject };
      const stream = this.#stream;
      stream.on("data", (chunk: Buffer) => this.#read(chunk));
      stream.on("error", (error) => this.lose(error.message));
      stream.on("end", () => this.lose("its channel was closed"));
      stream.on("close", () => this.lose("its channel was closed"));
      if (stream.destroyed) return this.lose("its channel was closed");
      stream.write(Buffer.alloc(FRAME_PADDING_BYTES));
      stream.write(encodeFrame({ type: HOST_FRAMES.hello, channel: 0 }, this.#search.payload(how)));
    });
  }

  async configure(configuration: GuestConfiguration): Promise<void> {
    await this.#request("configure", configurationFields(configuration));
    if (this.#hello !== undefined) this.#hello = { ...this.#hello, isConfigured: true };
  }

  warmUp(configuration: GuestConfiguration): Promise<void> {
    return this.#request("warmUp", configurationFields(configuration));
  }

  exec(request: GuestExecRequest): GuestExec {
    if (request.argv.length === 0) throw new RangeError("cannot run a command without a program");
    const channel = this.#freeChannel(this.#ofCommands);
    const fields = new FieldWriter()
      .texts("argument", request.argv)
      .texts("environment", environmentLines(request.env))
      .u32("hasStdin", request.hasStdin ? 1 : 0)
      .u32("isBackground", request.isBackground ? 1 : 0)
      .u32("needsPid", request.needsPid === false ? 0 : 1);
    if (request.cwd !== null) fields.text("cwd", request.cwd);
    if (request.user !== null) fields.text("user", request.user);
    if (request.terminal !== null) fields.u32("cols", request.terminal.cols).u32("rows", request.terminal.rows);
    const { resumeKey = null } = request;
    const isResumable = resumeKey !== null && this.keepsCommands && !request.isBackground;
    if (isResumable) fields.bytes("resumeKey", Buffer.from(resumeKey, "hex"));
    return this.#open("exec", channel, fields, {
      hasStdin: request.hasStdin || request.terminal !== null,
      isResumable,
    });
  }

  get keepsCommands(): boolean {
    return this.#hello?.keepsCommands ?? false;
  }

  resume(request: GuestResumeRequest): ResumedExec {
    return this.#resumeIn(this.#ofCommands, request, {});
  }

  get canConnect(): boolean {
    return this.#lostBecause === undefined && this.#ofConnections.hasRoom;
  }

  connect({ port, resumeKey }: GuestConnectRequest): GuestExec {
    const channel = this.#freeChannel(this.#ofConnections);
    const fields = new FieldWriter().u32("port", port).bytes("resumeKey", Buffer.from(resumeKey, "hex"));
    return this.#open("connect", channel, fields, {
      hasStdin: true,
      isResumable: true,
      windowBytes: CONNECTION_WINDOW_BYTES,
      takenFrom: 0,
    });
  }

  resumeConnection(request: GuestResumeRequest): ResumedExec {
    const how = { windowBytes: CONNECTION_WINDOW_BYTES, takenFrom: request.stdoutOffset };
    return this.#resumeIn(this.#ofConnections, request, how);
  }

  #resumeIn(
    { kept }: ChannelRange,
    { resumeKey, stdoutOffset, stderrOffset }: GuestResumeRequest,
    how: Pick<Opening, "windowBytes" | "takenFrom">,
  ): ResumedExec {
    if (this.#lostBecause !== undefined) throw this.#lostError();
    const channel = kept.get(resumeKey);
    if (channel === undefined) throw new Error("the guest has no such command or connection");
    const fields = new FieldWriter().u64("stdoutOffset", stdoutOffset).u64("stderrOffset", stderrOffset);
    const exec = this.#open("resume", channel, fields, { hasStdin: true, isResumable: true, isResumed: true, ...how });
    kept.delete(resumeKey);
    return { exec, stdinOffset: exec.stdinOffset };
  }

  file(request: GuestFileRequest): GuestExec {
    const fields = new FieldWriter()
      .u32("operation", GUEST_FILE_OPERATIONS[request.operation])
      .text("path", request.path)
      .u64("offset", request.offset)
      .u32("isFromEnd", request.isFromEnd ? 1 : 0);
    if (request.length !== null) fields.u64("length", request.length);
    const { operation } = request;
    const window = this.#bulkWindow(operation);
    if (window === null)
      return this.#open("file", this.#freeChannel(this.#ofCommands), fields, { hasStdin: operation === "write" });
    fields.text("bulkDevice", window.device).u64("bulkOffset", window.offset).u64("bulkBytes", window.bytes);
    try {
      return overBulkDisk(
        this.#open("file", this.#freeChannel(this.#ofCommands), fields, { hasStdin: true }),
        window,
        operation === "write",
      );
    } catch (error) {
      window.release();
      throw error;
    }
  }

  #bulkWindow(operation: GuestFileRequest["operation"]): BulkWindow | null {
    const hasContent = operation === "read" || operation === "write";
    return !hasContent || this.#clock.monotonic() < this.#bulkFromMs ? null : (this.#bulk?.claim() ?? null);
  }

  #open(
    type: HostFrameType,
    channel: number,
    fields: FieldWriter,
    { hasStdin, isResumable = false, isResumed = false, ...how }: Opening,
  ): ClientExec {
    const message = encodeMessage({ type: HOST_FRAMES[type], channel }, fields.end());
    if (this.#stream.writableLength + message.byteLength > UNREAD_BYTES_MAX) {
      throw new Error("cannot run the command: the guest agent has stopped reading");
    }
    const exec = new ClientExec({
      ...how,
      hasStdin,
      isResumed,
      onReleased: isResumable ? () => this.#release(channel, exec) : null,
      send: (frameType, payload) => {
        if (this.#execs.get(channel) === exec)
          this.#write(encodeFrame({ type: HOST_FRAMES[frameType], channel }, payload));
      },
    });
    this.#execs.set(channel, exec);
    this.#rangeOf(channel).used += 1;
    this.#sendReleases();
    this.#write(message);
    return exec;
  }

  #release(channel: number, exec: ClientExec): void {
    const range = this.#rangeOf(channel);
    if (range.ended.get(channel) !== exec) return;
    range.ended.delete(channel);
    range.used -= 1;
    this.#released.push(channel);
    this.#releaseTimer ??= this.#clock.timer(RELEASE_MS, () => this.#sendReleases());
  }

  #sendReleases(): void {
    this.#releaseTimer?.cancel();
    this.#releaseTimer = null;
    const released = this.#released;
    this.#released = [];
    for (const channel of released) this.#write(encodeFrame({ type: HOST_FRAMES.release, channel }, NOTHING));
  }

  workload(request: GuestWorkloadRequest): GuestWorkload {
    const fields = new FieldWriter().texts("argument", request.argv).u64("offset", request.offset);
    // Until the guest has answered, it sends what a former request asked for.
    const began = (): void => void (this.#workload = workload);
    const workload = new ClientWorkload(request, this.#request("workload", fields, began), (payload) =>
      this.#write(encodeFrame({ type: HOST_FRAMES.workloadTaken, channel: 0 }, payload)),
    );
    this.#workload ??= workload;
    return workload;
  }

  onKilled(listener: (killed: GuestKilled) => void): void {
    this.#killed.listen(listener);
  }

  sync(): Promise<void> {
    return this.#request("syncFileSystems");
  }

  ping(): Promise<void> {
    return this.#request("ping");
  }

  shutDown(): Promise<void> {
    return this.#request("shutDown");
  }

  async freeze(): Promise<void> {
    if (this.#held !== null) throw new Error("the guest's programs are stopped already");
    const stopped = this.#request("freeze");
    this.#held = [];
    try {
      await stopped;
    } catch (error) {
      for (const bytes of this.#takeHeld()) this.#write(bytes);
      throw error;
    }
  }

  thaw(): Promise<void> {
    const held = this.#takeHeld();
    const running = this.#request("thaw");
    for (const bytes of held) this.#write(bytes);
    return running;
  }

  #takeHeld(): readonly Buffer[] {
    const held = this.#held ?? [];
    this.#held = null;
    return held;
  }

  close(): void {
    this.lose("the host closed it");
  }

  /** Closes the channel and ends everything that waits for it. */
  lose(reason: string): void {
    if (this.#lostBecause !== undefined) return;
    this.#lostBecause = reason;
    const error = this.#lostError();
    this.#stream.destroy();
    this.#greeting?.reject(error);
    for (const pending of this.#requests.values()) pending.reject(error);
    for (const exec of this.#execs.values()) exec.lose(error);
    this.#requests.clear();
    this.#execs.clear();
    this.#releaseTimer?.cancel();
    this.#killed.end();
    this.#bulk?.close().catch(() => {});
    this.#onClosed(reason);
  }

  #lostError(): Error {
    return new Error(`the channel to the guest agent is lost: ${this.#lostBecause}`);
  }

  #rangeOf(channel: number): ChannelRange {
    return channel > CHANNELS_MAX ? this.#ofConnections : this.#ofCommands;
  }

  #freeChannel(range: ChannelRange): number {
    if (this.#lostBecause !== undefined) throw this.#lostError();
    const { ended, kept, max } = range;
    if (!range.hasRoom) throw new GuestBusy(`the guest already runs its maximum of ${max} ${range.what}`);
    // What ended does not prevent new commands, even if its caller does not read. More than one may be too
    // many: a guest may have more connections of an earlier host than it says it opens.
    for (const oldest of ended.entries()) if (range.used + kept.size >= max) this.#release(...oldest);
    for (;;) {
      const channel = range.next();
      if (!this.#execs.has(channel) && !range.isWaiting(channel)) return channel;
    }
  }

  /** `onDone`: called before the frames that follow the answer are read. */
  #request(type: HostFrameType, fields = new FieldWriter(), onDone?: () => void): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.#lostBecause !== undefined) return reject(this.#lostError());
      if (this.#requests.size >= REQUESTS_MAX)
        return reject(new Error("too many requests are pending at the guest agent"));
      this.#lastRequest = (this.#lastRequest % 0xffff_ffff) + 1;
      const request = this.#lastRequest;
      const message = fields.u32("request", request).end();
      const bytes = encodeMessage({ type: HOST_FRAMES[type], channel: 0 }, message);
      const done = (): void => {
        onDone?.();
        resolve();
      };
      this.#requests.set(request, { resolve: done, reject });
      this.#write(bytes);
    });
  }

  /** Writes of one turn of the event loop are sent together. */
  #write(bytes: Buffer): void {
    if (this.#lostBecause !== undefined) return;
    if (this.#held !== null) return void this.#held.push(bytes);
    if (!this.#isCorked) {
      this.#isCorked = true;
      this.#stream.cork();
      process.nextTick(() => {
        this.#isCorked = false;
        this.#stream.uncork();
      });
    }
    this.#stream.write(bytes);
    if (this.#stream.writableLength > 2 * UNREAD_BYTES_MAX) this.lose("the guest agent has stopped reading");
  }

  #read(chunk: Buffer): void {
    if (this.#lostBecause !== undefined) return;
    try {
      const bytes = this.#hello === undefined ? this.#search.push(chunk) : chunk;
      if (bytes !== undefined) this.#decoder.push(bytes, this.#onFrame);
    } catch (error) {
      if (!(error instanceof GuestProtocolError)) throw error;
      this.lose(`the guest violated the protocol: ${error.message}`);
    }
  }

  #receive(frame: Frame): void {
    if (this.#lostBecause !== undefined) return;
    if (frame.flags !== 0) throw new GuestProtocolError("a message split into frames");
    this.received += 1;
    if (frame.channel !== 0) this.#receiveForExec(frame);
    else if (this.#hello === undefined) this.#receiveHello(frame);
    else if (frame.type === GUEST_FRAMES.killed) this.#killed.receive(frame.payload);
    else if (!this.#receiveFromWorkload(frame)) this.#receiveAnswer(frame);
  }

  #receiveFromWorkload({ type, payload }: Frame): boolean {
    if (type === GUEST_FRAMES.workloadOutput) this.#workload?.receiveOutput(payload);
    else if (type === GUEST_FRAMES.workloadEnded) this.#workload?.receiveEnd(payload);
    else return false;
    if (this.#workload === undefined) throw new GuestProtocolError("output of a workload that was not requested");
    return true;
  }

  #receiveHello(frame: Frame): void {
    this.#hello = this.#search.read(frame);
    const { kept, keptConnections, connectionsMax } = this.#hello;
    this.#ofCommands = new ChannelRange(1, CHANNELS_MAX, kept);
    this.#ofConnections = new ChannelRange(CHANNELS_MAX + 1, connectionsMax, keptConnections);
    if (this.#hello.isConfigured) this.#bulkFromMs = this.#clock.monotonic() + BULK_QUIET_MS;
    this.#greeting?.resolve();
    this.#greeting = undefined;
  }

  #receiveAnswer(frame: Frame): void {
    if (frame.type !== GUEST_FRAMES.done && frame.type !== GUEST_FRAMES.failed) {
      throw new GuestProtocolError(`a frame of type ${frame.type} for the machine`);
    }
    const fields = new FieldReader(frame.payload);
    const request = fields.u32("request");
    const failure = frame.type === GUEST_FRAMES.failed ? new Error(fields.text("message")) : undefined;
    const pending = this.#requests.get(request);
    if (pending === undefined) throw new GuestProtocolError(`an answer to request ${request}, which is not pending`);
    this.#requests.delete(request);
    if (failure === undefined) pending.resolve();
    else pending.reject(failure);
  }

  #receiveForExec(frame: Frame): void {
    const exec = this.#execs.get(frame.channel);
    if (exec === undefined && this.#forget(frame)) return;
    if (exec === undefined) throw new GuestProtocolError(`a frame for channel ${frame.channel}, which is not open`);
    switch (frame.type) {
      case GUEST_FRAMES.stdout:
        return exec.receive("stdout", frame.payload);
      case GUEST_FRAMES.stderr:
        return exec.receive("stderr", frame.payload);
      case GUEST_FRAMES.started:
        return exec.start(new FieldReader(frame.payload).u32("pid"));
      case GUEST_FRAMES.stdinCredit:
        return exec.creditStdin(new FieldReader(frame.payload).u32("bytes"));
      case GUEST_FRAMES.exit: {
        const exitCode = new FieldReader(frame.payload).u32("exitCode");
        if (exitCode > 255) throw new GuestProtocolError(`exit code ${exitCode}`);
        this.#execs.delete(frame.channel);
        if (exec.isResumable) this.#rangeOf(frame.channel).ended.set(frame.channel, exec);
        else this.#rangeOf(frame.channel).used -= 1;
        return exec.end(exitCode);
      }
      case GUEST_FRAMES.failed: {
        const message = new FieldReader(frame.payload).text("message");
        this.#execs.delete(frame.channel);
        this.#rangeOf(frame.channel).used -= 1;
        return exec.lose(new Error(frame.channel > CHANNELS_MAX ? message : `cannot run the command: ${message}`));
      }
      case GUEST_FRAMES.resumed: {
        const fields = new FieldReader(frame.payload);
        return exec.resumed(fields.u64("stdinOffset"), fields.u32("bytes"));
      }
      default:
        throw new GuestProtocolError(`a frame of type ${frame.type} for a command`);
    }
  }

  /** The guest has ended a command that was not resumed in time. */
  #forget({ type, channel }: Frame): boolean {
    if (type !== GUEST_FRAMES.exit) return false;
    const { kept } = this.#rangeOf(channel);
    for (const [key, each] of kept) if (each === channel) return kept.delete(key);
    return false;
  }
}

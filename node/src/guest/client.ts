/**
 * The host's end of a guest channel: implements `Guest` over a stream of bytes that leads to a guest agent.
 *
 * Owns the stream from the call on. GUEST-PROTOCOL.md in contract/ says what goes over it.
 *
 * Always:
 * - The guest is hostile: what does not fit the protocol ends the channel with a reason, and it cannot make this process
 *   hold more than the window of each stream.
 * - When the channel is lost, everything that waits for it is told: promises reject, readers of output get an error.
 * - Commands do not wait for each other: each stream has its own credit.
 *
 * A node agent that dies leaves bytes of its last frame missing and answers unread. So whoever connects first sends
 * zeros that complete any frame, then a hello with a nonce, and throws away what comes before the nonce is repeated.
 */
import { randomBytes } from "node:crypto";
import type { Duplex } from "node:stream";
import { type Clock, systemClock } from "@flotilla/base/clock";
import {
  CHANNELS_MAX,
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
import { HelloSearch } from "./client-hello.ts";
import { ClientWorkload } from "./client-workload.ts";
import {
  type Guest,
  GuestBusy,
  type GuestConfiguration,
  type GuestExec,
  type GuestExecRequest,
  type GuestFileRequest,
  type GuestHello,
  type GuestWorkload,
  type GuestWorkloadRequest,
} from "./guest.ts";

export interface ConnectGuestOptions {
  /** How long the agent may take to answer, in milliseconds: the guest may still be booting. */
  readonly helloTimeoutMs: number;
  /** Gives up connecting; the stream is destroyed. Has no effect once connected. */
  readonly signal?: AbortSignal;
  readonly clock?: Clock;
  /** Belongs to the client from now on; null or absent: content of files goes over the channel. */
  readonly bulk?: BulkDisk | null;
}

/** What may wait in this process for a guest that does not read. Over it commands are refused, over twice that it is cut off. */
const UNREAD_BYTES_MAX = 64 * 1024 * 1024;
const REQUESTS_MAX = 1024;
/**
 * A worker for the host before may still be in the middle of a write when the guest has ended it: so long its bulk disk is
 * left alone.
 */
export const BULK_QUIET_MS = 30_000;

/**
 * Takes over the stream and resolves when the agent has answered. Rejects, and has destroyed the stream, when it does
 * not answer in time, breaks the protocol or the stream ends.
 */
export async function connectGuest(stream: Duplex, options: ConnectGuestOptions): Promise<Guest> {
  const clock = options.clock ?? systemClock;
  const client = new GuestClient(stream, clock, options.bulk ?? null);
  const giveUp = (): void => client.lose("the caller gave up waiting for it");
  const timer = clock.timer(options.helloTimeoutMs, () =>
    client.lose(`it did not answer within ${options.helloTimeoutMs} ms`),
  );
  options.signal?.addEventListener("abort", giveUp, { once: true });
  try {
    if (options.signal?.aborted) giveUp();
    await client.greet();
    return client;
  } finally {
    timer.cancel();
    options.signal?.removeEventListener("abort", giveUp);
  }
}

interface Pending {
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

class GuestClient implements Guest {
  readonly closed: Promise<string>;
  readonly #stream: Duplex;
  readonly #clock: Clock;
  /** Only a host that connects has a use for zeros: a guest that sends many keeps this process busy for nothing. */
  readonly #decoder = new FrameDecoder(FRAME_PADDING_BYTES);
  readonly #search: HelloSearch;
  readonly #execs = new Map<number, ClientExec>();
  readonly #requests = new Map<number, Pending>();
  readonly #onFrame = (frame: Frame): void => this.#take(frame);
  #hello: GuestHello | undefined;
  #greeting: Pending | undefined;
  #lostBecause: string | undefined;
  #workload: ClientWorkload | undefined;
  readonly #bulk: BulkDisk | null;
  #bulkFromMs = 0;
  #lastRequest = 0;
  #lastChannel = 0;
  #isCorked = false;
  #onClosed: (reason: string) => void = () => {};

  constructor(stream: Duplex, clock: Clock, bulk: BulkDisk | null) {
    this.#stream = stream;
    this.#clock = clock;
    this.#bulk = bulk;
    this.#search = new HelloSearch(randomBytes);
    this.closed = new Promise((resolve) => {
      this.#onClosed = resolve;
    });
  }

  get hello(): GuestHello {
    if (this.#hello === undefined) throw new Error("the guest agent has not answered yet");
    return this.#hello;
  }

  /** Says hello and resolves with the answer. */
  greet(): Promise<void> {
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
      stream.write(encodeFrame({ type: HOST_FRAMES.hello, channel: 0 }, this.#search.question));
    });
  }

  async configure(configuration: GuestConfiguration): Promise<void> {
    await this.#request("configure", configurationFields(configuration));
    this.#hello = { ...this.hello, isConfigured: true };
  }

  warmUp(configuration: GuestConfiguration): Promise<void> {
    return this.#request("warmUp", configurationFields(configuration));
  }

  exec(request: GuestExecRequest): GuestExec {
    if (request.argv.length === 0) throw new RangeError("cannot run a command without a program");
    const channel = this.#freeChannel();
    const fields = new FieldWriter()
      .texts("argument", request.argv)
      .texts("environment", environmentLines(request.env))
      .number("hasStdin", request.hasStdin ? 1 : 0)
      .number("isBackground", request.isBackground ? 1 : 0)
      .number("needsPid", request.needsPid === false ? 0 : 1);
    if (request.cwd !== null) fields.text("cwd", request.cwd);
    if (request.user !== null) fields.text("user", request.user);
    if (request.terminal !== null) fields.number("cols", request.terminal.cols).number("rows", request.terminal.rows);
    return this.#open("exec", channel, fields, request.hasStdin || request.terminal !== null);
  }

  file(request: GuestFileRequest): GuestExec {
    const fields = new FieldWriter()
      .number("operation", GUEST_FILE_OPERATIONS[request.operation])
      .text("path", request.path)
      .time("offset", request.offset)
      .number("isFromEnd", request.isFromEnd ? 1 : 0);
    if (request.length !== null) fields.time("length", request.length);
    const { operation } = request;
    const window = this.#bulkWindow(operation);
    if (window === null) return this.#open("file", this.#freeChannel(), fields, operation === "write");
    fields.text("bulkDevice", window.device).time("bulkOffset", window.offset).time("bulkBytes", window.bytes);
    try {
      return overBulkDisk(this.#open("file", this.#freeChannel(), fields, true), window, operation === "write");
    } catch (error) {
      window.release();
      throw error;
    }
  }

  #bulkWindow(operation: GuestFileRequest["operation"]): BulkWindow | null {
    const hasContent = operation === "read" || operation === "write";
    return !hasContent || this.#clock.monotonic() < this.#bulkFromMs ? null : (this.#bulk?.take() ?? null);
  }

  #open(type: HostFrameType, channel: number, fields: FieldWriter, hasStdin: boolean): GuestExec {
    const message = encodeMessage({ type: HOST_FRAMES[type], channel }, fields.end());
    if (this.#stream.writableLength + message.byteLength > UNREAD_BYTES_MAX) {
      throw new Error("cannot run the command: the guest agent does not read what it is sent");
    }
    const exec = new ClientExec({
      hasStdin,
      send: (frameType, payload) => {
        if (this.#execs.get(channel) === exec)
          this.#write(encodeFrame({ type: HOST_FRAMES[frameType], channel }, payload));
      },
    });
    this.#execs.set(channel, exec);
    this.#write(message);
    return exec;
  }

  workload(request: GuestWorkloadRequest): GuestWorkload {
    const fields = new FieldWriter().texts("argument", request.argv).time("offset", request.offset);
    this.#workload = new ClientWorkload(request, this.#request("workload", fields), (payload) =>
      this.#write(encodeFrame({ type: HOST_FRAMES.workloadTaken, channel: 0 }, payload)),
    );
    return this.#workload;
  }

  async ping(timeoutMs: number): Promise<void> {
    const answer = this.#request("ping");
    let timer: { cancel(): void } | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = this.#clock.timer(timeoutMs, () =>
        reject(new Error(`the guest agent did not answer a ping within ${timeoutMs} ms`)),
      );
    });
    try {
      await Promise.race([answer, late]);
    } finally {
      timer?.cancel();
      answer.catch(() => {});
    }
  }

  sync(): Promise<void> {
    return this.#request("syncFileSystems");
  }

  shutDown(): Promise<void> {
    return this.#request("shutDown");
  }

  close(): void {
    this.lose("it was let go of");
  }

  /** Ends the channel for good and tells everybody who waits. */
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
    this.#bulk?.close().catch(() => {});
    this.#onClosed(reason);
  }

  #lostError(): Error {
    return new Error(`the channel to the guest agent is lost: ${this.#lostBecause}`);
  }

  #freeChannel(): number {
    if (this.#lostBecause !== undefined) throw this.#lostError();
    if (this.#execs.size >= CHANNELS_MAX) {
      throw new GuestBusy(`it runs ${CHANNELS_MAX} commands at once already`);
    }
    do {
      this.#lastChannel = (this.#lastChannel % CHANNELS_MAX) + 1;
    } while (this.#execs.has(this.#lastChannel));
    return this.#lastChannel;
  }

  #request(type: HostFrameType, fields = new FieldWriter()): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.#lostBecause !== undefined) return reject(this.#lostError());
      if (this.#requests.size >= REQUESTS_MAX) return reject(new Error("too many requests wait for the guest agent"));
      this.#lastRequest = (this.#lastRequest % 0xffff_ffff) + 1;
      const request = this.#lastRequest;
      const message = fields.number("request", request).end();
      const bytes = encodeMessage({ type: HOST_FRAMES[type], channel: 0 }, message);
      this.#requests.set(request, { resolve, reject });
      this.#write(bytes);
    });
  }

  /** What is written in one turn of the event loop goes out together. */
  #write(bytes: Buffer): void {
    if (this.#lostBecause !== undefined) return;
    if (!this.#isCorked) {
      this.#isCorked = true;
      this.#stream.cork();
      process.nextTick(() => {
        this.#isCorked = false;
        this.#stream.uncork();
      });
    }
    this.#stream.write(bytes);
    if (this.#stream.writableLength > 2 * UNREAD_BYTES_MAX) this.lose("it does not read what it is sent");
  }

  #read(chunk: Buffer): void {
    if (this.#lostBecause !== undefined) return;
    try {
      const bytes = this.#hello === undefined ? this.#search.push(chunk) : chunk;
      if (bytes !== undefined) this.#decoder.push(bytes, this.#onFrame);
    } catch (error) {
      if (!(error instanceof GuestProtocolError)) throw error;
      this.lose(`it broke the protocol: ${error.message}`);
    }
  }

  #take(frame: Frame): void {
    if (this.#lostBecause !== undefined) return;
    if (frame.flags !== 0) throw new GuestProtocolError("a message in several frames");
    if (frame.channel !== 0) this.#takeForExec(frame);
    else if (this.#hello === undefined) this.#takeHello(frame);
    else if (!this.#takeFromWorkload(frame)) this.#takeAnswer(frame);
  }

  #takeFromWorkload({ type, payload }: Frame): boolean {
    if (type === GUEST_FRAMES.workloadOutput) this.#workload?.takeOutput(payload);
    else if (type === GUEST_FRAMES.workloadEnded) this.#workload?.takeEnd(payload);
    else return false;
    if (this.#workload === undefined) throw new GuestProtocolError("words of a workload that nobody asked for");
    return true;
  }

  #takeHello(frame: Frame): void {
    this.#hello = this.#search.read(frame);
    if (this.#hello.isConfigured) this.#bulkFromMs = this.#clock.monotonic() + BULK_QUIET_MS;
    this.#greeting?.resolve();
    this.#greeting = undefined;
  }

  #takeAnswer(frame: Frame): void {
    if (frame.type !== GUEST_FRAMES.done && frame.type !== GUEST_FRAMES.failed) {
      throw new GuestProtocolError(`a frame of type ${frame.type} for the machine`);
    }
    const fields = new FieldReader(frame.payload);
    const request = fields.number("request");
    const failure = frame.type === GUEST_FRAMES.failed ? new Error(fields.text("message")) : undefined;
    const pending = this.#requests.get(request);
    if (pending === undefined) throw new GuestProtocolError(`an answer to request ${request}, which nobody made`);
    this.#requests.delete(request);
    if (failure === undefined) pending.resolve();
    else pending.reject(failure);
  }

  #takeForExec(frame: Frame): void {
    const exec = this.#execs.get(frame.channel);
    if (exec === undefined) throw new GuestProtocolError(`a frame for channel ${frame.channel}, which is not open`);
    switch (frame.type) {
      case GUEST_FRAMES.stdout:
        return exec.take("stdout", frame.payload);
      case GUEST_FRAMES.stderr:
        return exec.take("stderr", frame.payload);
      case GUEST_FRAMES.started:
        return exec.start(new FieldReader(frame.payload).number("pid"));
      case GUEST_FRAMES.stdinCredit:
        return exec.creditStdin(new FieldReader(frame.payload).number("bytes"));
      case GUEST_FRAMES.exit: {
        const exitCode = new FieldReader(frame.payload).number("exitCode");
        if (exitCode > 255) throw new GuestProtocolError(`exit code ${exitCode}`);
        this.#execs.delete(frame.channel);
        return exec.end(exitCode);
      }
      case GUEST_FRAMES.failed: {
        const message = new FieldReader(frame.payload).text("message");
        this.#execs.delete(frame.channel);
        return exec.lose(new Error(`cannot run the command: ${message}`));
      }
      default:
        throw new GuestProtocolError(`a frame of type ${frame.type} for a command`);
    }
  }
}

function environmentLines(env: Readonly<Record<string, string>>): string[] {
  return Object.entries(env).map(([name, value]) => `${name}=${value}`);
}

function configurationFields(configuration: GuestConfiguration): FieldWriter {
  const fields = new FieldWriter()
    .text("hostname", configuration.hostname)
    .text("machineId", configuration.machineId)
    .time("now", configuration.now)
    .bytes("entropy", configuration.entropy)
    .texts("environment", environmentLines(configuration.env))
    .text("workdir", configuration.workdir)
    .text("user", configuration.user)
    .texts("nameserver", configuration.nameservers);
  if (configuration.rootDevice !== null) fields.text("rootDevice", configuration.rootDevice);
  if (configuration.rootBytes !== null) fields.time("rootBytes", configuration.rootBytes);
  if (configuration.address !== null) {
    fields.text("address", configuration.address.cidr).text("gateway", configuration.address.gateway);
  }
  return fields;
}

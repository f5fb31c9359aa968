/**
 * A guest without a VM: answers like an agent, by script.
 *
 * FAKE: for tests of the control plane.
 */
import { Readable, Writable } from "node:stream";
import type { Clock } from "@flotilla/base/clock";
import { LinkedList } from "@flotilla/base/linked-list";
import {
  type Guest,
  GuestBusy,
  type GuestConfiguration,
  type GuestExec,
  type GuestExecRequest,
  type GuestExit,
  type GuestFileRequest,
  type GuestHello,
  type GuestKilled,
  type GuestResumeRequest,
  type GuestWorkload,
  type GuestWorkloadRequest,
  type ResumedExec,
} from "../../guest/guest.ts";
import { NO_INPUT } from "../../guest/no-input.ts";
import type { FakeFiles } from "./files.ts";
import { runScript, type ScriptWorld } from "./script.ts";
import type { FakeServers } from "./servers.ts";
import { FakeWorkload } from "./workload.ts";

/** The guest's interface to its VM. */
export interface FakeMachine {
  readonly clock: Clock;
  /** The machine's environment, with the FAKE_… variables that cause faults. */
  readonly environment: Readonly<Record<string, string>>;
  readonly files: FakeFiles;
  readonly servers: FakeServers;
  configured(configuration: FakeConfiguration): Promise<void>;
  /** Whether to run the workload now; true once in the life of the VM. */
  startWorkload(): boolean;
  end(how: "poweroff" | "crashed" | "flooded"): void;
  /** Whether it crashes when it is configured. */
  readonly crashesWhenConfigured: boolean;
}

/** A command in the memory of a suspended machine. */
export type FakeCommand = GuestExecRequest & { readonly resumeKey: string };

/** The part of a configuration that is kept. */
export type FakeConfiguration = Pick<GuestConfiguration, "hostname" | "env" | "workdir">;

/** As good as for ever. */
const HANGS_MS = 24 * 3_600_000;
const SIGHUP = 1;
const SIGKILL = 9;

export class FakeGuest implements Guest {
  readonly hello: GuestHello;
  readonly keepsCommands: boolean;
  readonly closed: Promise<string>;
  /** As that of `Vm.watchDiskPause`. */
  onDiskPause: (isPaused: boolean) => void = () => undefined;
  #killed: (killed: GuestKilled) => void = () => undefined;
  readonly #machine: FakeMachine;
  readonly #execs = new LinkedList<FakeExec>();
  readonly #kept: Map<string, FakeCommand>;
  #configuration: FakeConfiguration;
  readonly #closing = Promise.withResolvers<string>();
  #closedBecause: string | null = null;
  #lastPid = 100;
  #workload: FakeWorkload | null = null;
  received = 0;
  #answers: Promise<void> = Promise.resolve();
  readonly #ending = new AbortController();

  /** `kept`: the commands that wait for `resume`. */
  constructor(machine: FakeMachine, configuration: FakeConfiguration | null, kept: readonly FakeCommand[] = []) {
    this.#machine = machine;
    this.#kept = new Map(kept.map((command) => [command.resumeKey, command]));
    this.keepsCommands = machine.environment["FAKE_KEEPS_COMMANDS"] !== undefined;
    this.#configuration = configuration ?? { hostname: "localhost", env: {}, workdir: "/" };
    this.hello = { isConfigured: configuration !== null, timerKhz: null };
    this.closed = this.#closing.promise;
  }

  warmUp(): Promise<void> {
    return Promise.resolve();
  }

  async configure({ hostname, env, workdir }: GuestConfiguration): Promise<void> {
    if (this.#machine.crashesWhenConfigured) {
      this.#machine.end("crashed");
      throw new Error(await this.closed);
    }
    if (this.#machine.environment["FAKE_CONFIGURE_FAIL"] !== undefined) throw new Error("FAKE_CONFIGURE_FAIL is set");
    this.#configuration = { hostname, env, workdir };
    await this.#machine.configured(this.#configuration);
  }

  exec(request: GuestExecRequest): GuestExec {
    return this.#run(request, (world) => runScript(request.argv, world));
  }

  /** A script begins again, with all of its input, and leaves out the output that was received. */
  resume({ resumeKey, stdoutOffset, stderrOffset }: GuestResumeRequest): ResumedExec {
    const request = this.#kept.get(resumeKey);
    if (request === undefined) throw new Error("the guest has no such command");
    this.#kept.delete(resumeKey);
    const skipped = { stdout: stdoutOffset, stderr: stderrOffset };
    const exec = this.#run(request, (world) => runScript(request.argv, without(world, skipped)));
    return { exec, stdinOffset: Promise.resolve(0) };
  }

  /** Commands that a suspended machine has in its memory. */
  commands(): readonly FakeCommand[] {
    const running = [...this.#execs].flatMap(({ request }) => {
      const { resumeKey } = request;
      return this.keepsCommands && resumeKey !== undefined ? [{ ...request, resumeKey }] : [];
    });
    return [...running, ...this.#kept.values()];
  }

  file(request: GuestFileRequest): GuestExec {
    const { files, clock } = this.#machine;
    const hasStdin = request.operation === "write";
    const asCommand = { argv: [], cwd: null, env: {}, user: null, hasStdin, terminal: null, isBackground: false };
    return this.#run(asCommand, (world) => files.run(request, world, () => clock.now()));
  }

  workload(request: GuestWorkloadRequest): GuestWorkload {
    const { env, workdir, hostname } = this.#configuration;
    const { clock, files } = this.#machine;
    const workload = new FakeWorkload(request);
    this.#workload = workload;
    if (!this.#machine.startWorkload()) return workload;
    const signal = this.#ending.signal;
    void workload.run((write) =>
      runScript(request.argv, {
        env,
        cwd: workdir,
        hostname,
        input: Readable.from([]),
        files,
        terminalSize: () => null,
        write: (_output, data) => write(data),
        sleep: (ms) => clock.sleep(ms, signal),
        ...this.#troubles,
        end: (how) => this.#machine.end(how),
        checkAlive: () => signal.throwIfAborted(),
      }),
    );
    return workload;
  }

  #run(request: GuestExecRequest, program: Program): GuestExec {
    // Like a real guest without a channel.
    if (this.#closedBecause !== null) throw new Error(this.#closedBecause);
    const { FAKE_EXECS_MAX: max, FAKE_AGENT_SILENT: silent } = this.#machine.environment;
    if (silent !== undefined) throw new Error("FAKE_AGENT_SILENT is set");
    if (max !== undefined && this.#execs.size >= Number(max))
      throw new GuestBusy(`the guest already runs ${max} commands`);
    this.#lastPid += 1;
    const parts = { request, program, machine: this.#machine, configuration: this.#configuration };
    const exec = new FakeExec({ ...parts, troubles: this.#troubles }, this.#lastPid);
    const place = this.#execs.append(exec);
    exec.run(() => place.remove());
    return exec;
  }

  readonly #troubles: Troubles = {
    pauseForDisk: (isPaused) => this.onDiskPause(isPaused),
    killForMemory: (program) => this.#killed({ program, count: 1 }),
    hang: (ms) => this.hang(ms),
    listen: (port, status) => this.#machine.servers.listen(port, status),
    unlisten: (port) => this.#machine.servers.unlisten(port),
  };

  onKilled(listener: (killed: GuestKilled) => void): void {
    this.#killed = listener;
  }

  sync(): Promise<void> {
    return this.#closedBecause === null ? Promise.resolve() : Promise.reject(new Error(this.#closedBecause));
  }

  /** Its commands run on: nothing of them is in its memory. */
  async freeze(): Promise<void> {
    if (this.#machine.environment["FAKE_FREEZE_FAIL"] !== undefined) throw new Error("FAKE_FREEZE_FAIL is set");
    await this.ping();
  }

  thaw(): Promise<void> {
    return this.ping();
  }

  /** Its agent answers nothing, until it resolves: after `ms`, or at the end. */
  hang(ms = HANGS_MS): Promise<void> {
    this.#answers = this.#machine.clock.sleep(ms, this.#ending.signal);
    return this.#answers;
  }

  async ping(): Promise<void> {
    await this.#answers;
    this.received += 1;
  }

  async shutDown(): Promise<void> {
    await this.#answers;
    await this.sync();
    if (this.#machine.environment["FAKE_IGNORE_SHUTDOWN"] !== undefined) return;
    if (this.#machine.servers.areInUse) await this.#machine.servers.stop();
    this.#machine.end("poweroff");
  }

  close(): void {
    this.lose("the channel was closed");
  }

  /** Breaks the channel: running commands are lost. */
  lose(reason: string): void {
    if (this.#closedBecause !== null) return;
    this.#closedBecause = reason;
    for (const exec of this.#execs) exec.lose(reason);
    this.#workload?.lose();
    this.#ending.abort(new Error(reason));
    this.#closing.resolve(reason);
  }
}

function without(world: ScriptWorld, skipped: Record<"stdout" | "stderr", number>): ScriptWorld {
  return {
    ...world,
    write(output, data) {
      const bytes = Buffer.from(data);
      const left = bytes.subarray(skipped[output]);
      skipped[output] -= bytes.byteLength - left.byteLength;
      return left.byteLength === 0 ? undefined : world.write(output, left);
    },
  };
}

/** What a script does to its machine as a whole. */
type Troubles = Pick<ScriptWorld, "pauseForDisk" | "killForMemory" | "hang" | "listen" | "unlisten">;

type Program = (world: ScriptWorld) => Promise<number> | number;

interface FakeExecParts {
  readonly request: GuestExecRequest;
  readonly program: Program;
  readonly machine: FakeMachine;
  readonly configuration: FakeConfiguration;
  readonly troubles: Troubles;
}

class FakeExec implements GuestExec {
  readonly pid: Promise<number>;
  readonly stdin: Writable;
  readonly stdout: Readable;
  readonly stderr: Readable;
  readonly exit: Promise<GuestExit>;
  readonly request: GuestExecRequest;
  readonly #program: Program;
  readonly #machine: FakeMachine;
  readonly #configuration: FakeConfiguration;
  readonly #troubles: Troubles;
  readonly #input: Readable;
  readonly #stopping = new AbortController();
  readonly #readers = new Map<Readable, () => void>();
  #signal = 0;
  #size: { cols: number; rows: number } | null;
  readonly #exiting = Promise.withResolvers<GuestExit>();

  constructor({ request, program, machine, configuration, troubles }: FakeExecParts, pid: number) {
    this.request = request;
    this.#program = program;
    this.#machine = machine;
    this.#configuration = configuration;
    this.#troubles = troubles;
    this.#size = request.terminal;
    this.pid = Promise.resolve(pid);
    this.stdout = new Readable({ read: () => this.#onRead(this.stdout) });
    this.stderr = new Readable({ read: () => this.#onRead(this.stderr) });
    let inputRead: (() => void) | null = null;
    this.#input = new Readable({
      read: () => {
        // Cleared before the call, because the callback may write again immediately.
        const resume = inputRead;
        inputRead = null;
        resume?.();
      },
    });
    const stdin = (): Writable =>
      new Writable({
        write: (chunk: Buffer, _encoding, done) => {
          if (this.#input.push(chunk)) done();
          else inputRead = done;
        },
        final: (done) => {
          this.#input.push(null);
          done();
        },
      });
    this.stdin = request.hasStdin ? stdin() : NO_INPUT;
    if (!request.hasStdin) this.#input.push(null);
    this.exit = this.#exiting.promise;
  }

  run(whenDone: () => void): void {
    const world: ScriptWorld = {
      env: { ...this.#configuration.env, ...this.request.env },
      cwd: this.request.cwd ?? this.#configuration.workdir,
      hostname: this.#configuration.hostname,
      input: this.#input as AsyncIterable<Uint8Array>,
      files: this.#machine.files,
      terminalSize: () => this.#size,
      write: (output, data) => this.#write(output === "stdout" ? this.stdout : this.stderr, data),
      sleep: (ms) => this.#machine.clock.sleep(ms, this.#stopping.signal),
      ...this.#troubles,
      end: (how) => this.#machine.end(how),
      checkAlive: () => this.#stopping.signal.throwIfAborted(),
    };
    const finish = (exitCode: number): void => {
      whenDone();
      this.#deliver(this.#signal === 0 ? exitCode : 128 + this.#signal);
    };
    if (this.request.isBackground) {
      void this.#runToEnd(world).then(whenDone);
      this.#deliver(0);
    } else void this.#runToEnd(world).then(finish);
  }

  async #runToEnd(world: ScriptWorld): Promise<number> {
    try {
      return await this.#program(world);
    } catch {
      return 1;
    }
  }

  resize(size: { cols: number; rows: number }): void {
    if (this.#size !== null) this.#size = size;
  }

  signal(signal: number): void {
    this.#signal = signal;
    this.#stopping.abort(new Error("the command was killed by a signal"));
    this.#input.destroy();
    for (const [output] of this.#readers) this.#onRead(output);
  }

  /** A scripted command ends at the first signal. */
  kill(graceMs = 0): void {
    this.signal(graceMs > 0 ? SIGHUP : SIGKILL);
  }

  lose(reason: string): void {
    this.#exiting.reject(new Error(reason));
    this.exit.catch(() => undefined);
    this.kill();
  }

  #write(output: Readable, data: string | Uint8Array): Promise<void> | undefined {
    if (this.#stopping.signal.aborted || output.push(data)) return undefined;
    return new Promise((resolve) => {
      this.#readers.set(output, resolve);
    });
  }

  #onRead(output: Readable): void {
    const resolve = this.#readers.get(output);
    this.#readers.delete(output);
    resolve?.();
  }

  /** Reports the exit after both outputs have been read completely. */
  #deliver(exitCode: number): void {
    let open = 2;
    for (const output of [this.stdout, this.stderr]) {
      output.once("end", () => {
        open -= 1;
        if (open === 0) this.#exiting.resolve({ exitCode });
      });
      output.push(null);
    }
  }
}

/**
 * The interface to a machine's guest agent, independent of the transport.
 *
 * `client.ts` implements it over the guest protocol (GUEST-PROTOCOL.md); the fake driver implements it by a
 * script.
 */
import type { Readable, Writable } from "node:stream";
import type { GUEST_FILE_OPERATIONS } from "@flotilla/contract/guest/messages";

/** What the agent reported when the channel opened. */
export interface GuestHello {
  /**
   * Whether the guest was configured since it booted: true when a node agent reconnects to a running machine.
   */
  readonly isConfigured: boolean;
  /**
   * How fast its timer counts, as its kernel measured it at the boot: thousands in a second. 0: it has no
   * timer; null: unknown.
   */
  readonly timerKhz: number | null;
}

/** Everything about a machine that must not be part of a boot or a template. */
export interface GuestConfiguration {
  readonly hostname: string;
  /** 32 hex; written to /etc/machine-id. */
  readonly machineId: string;
  /** Epoch milliseconds. */
  readonly now: number;
  /** At least 32 bytes, added to the guest's random pool. */
  readonly entropy: Uint8Array;
  /** The environment of every command: the image's, overridden by the machine's. */
  readonly env: Readonly<Record<string, string>>;
  readonly workdir: string;
  /** As in an image's config: `user`, `uid`, `user:group`, `uid:gid`; empty is root. */
  readonly user: string;
  /**
   * The root disk's block device in the guest; null when the root file system is mounted already (agent on a
   * socketpair).
   */
  readonly rootDevice: string | null;
  /**
   * The device's expected size in bytes: it may just have changed, so the guest waits for it. null: any size.
   */
  readonly rootBytes: number | null;
  readonly nameservers: readonly string[];
  readonly address: { readonly cidr: string; readonly gateway: string } | null;
  /**
   * The guest is a copy of another machine's and was connected to as one: it becomes this machine before its
   * programs run again. Absent: it is not.
   */
  readonly isClone?: boolean;
}

export interface GuestExecRequest {
  readonly argv: readonly string[];
  readonly cwd: string | null;
  readonly env: Readonly<Record<string, string>>;
  readonly user: string | null;
  readonly hasStdin: boolean;
  readonly terminal: { readonly cols: number; readonly rows: number } | null;
  /** The command outlives the channel, and the exec ends as soon as the command runs. */
  readonly isBackground: boolean;
  /**
   * Absent: true. false: the caller does not wait for `pid`, which will reject. This saves a message per
   * command, and with it a wake-up of the VMM and one of this process.
   */
  readonly needsPid?: boolean;
  /** 32 hex: the next host can resume the command by this name. Absent: it ends with this host. */
  readonly resumeKey?: string;
}

/** A connection to a port of the guest's own address. */
export interface GuestConnectRequest {
  readonly port: number;
  /** 32 hex: the next host can resume the connection by this name. */
  readonly resumeKey: string;
}

/**
 * Which command or connection to resume, and how much of its output was received before its host was lost.
 */
export interface GuestResumeRequest {
  readonly resumeKey: string;
  readonly stdoutOffset: number;
  readonly stderrOffset: number;
}

/** A command or connection of an earlier host, which continues where that host had received its output. */
export interface ResumedExec {
  readonly exec: GuestExec;
  /**
   * How much of its input the guest has received; the rest is to be sent. Rejects when the command is not
   * resumed.
   */
  readonly stdinOffset: Promise<number>;
}

/** The guest runs its maximum of concurrent commands; try again later. */
export class GuestBusy extends Error {}

/** An operation on one path; GUEST-PROTOCOL.md describes the streams. */
export interface GuestFileRequest {
  readonly operation: keyof typeof GUEST_FILE_OPERATIONS;
  /** Absolute. */
  readonly path: string;
  /** First byte to read, counted from the end with `isFromEnd`. */
  readonly offset: number;
  /** Max bytes to read; null: to the end. */
  readonly length: number | null;
  readonly isFromEnd: boolean;
}

/**
 * How a command ended: its exit code, 128 + the number of the signal that killed it, or 255 and a stderr text
 * if it could not run.
 */
export interface GuestExit {
  readonly exitCode: number;
}

/** A running command. */
export interface GuestExec {
  /** The process id in the guest; resolves when the command runs. */
  readonly pid: Promise<number>;
  readonly stdin: Writable;
  /** A reader that stops reading blocks only this command. */
  readonly stdout: Readable;
  readonly stderr: Readable;
  /**
   * Resolves after both outputs were delivered completely to their readers; rejects when the channel is lost.
   * An output that has no reader by then does not delay it, and can still be read.
   */
  readonly exit: Promise<GuestExit>;
  resize(size: { cols: number; rows: number }): void;
  /** Sends a signal to the command's process group. */
  signal(signal: number): void;
  /**
   * Kills the command and all its descendants. With `graceMs` the command gets SIGHUP first, as if its
   * terminal had closed, and what remains after that time is killed. `exit` still resolves.
   */
  kill(graceMs?: number): void;
  /**
   * Says how much of a connection's output its other end has, since it began. At most CONNECTION_WINDOW_BYTES
   * are sent beyond that.
   */
  outputTaken?(stdoutBytes: number): void;
  /**
   * Calls back with how much of the input the guest has certainly received, since the command or connection
   * began.
   */
  onInputTaken?(taken: (bytes: number) => void): void;
  /**
   * Everything of the command was delivered, or is not needed: the guest need not keep it. Absent: it keeps
   * nothing.
   */
  release?(): void;
}

export interface GuestWorkloadRequest {
  readonly argv: readonly string[];
  /** The offset in the output, counted since the guest booted, that the host has stored already. */
  readonly offset: number;
  /**
   * New output; `offset` is that of its first byte. The guest dropped what is missing before it. `bytes` is
   * valid only during the call. At most WORKLOAD_WINDOW_BYTES arrive without `acknowledge`.
   */
  onOutput(offset: number, bytes: Buffer): void;
  /** The workload has ended; comes after the output until then. May repeat when a host reconnects. */
  onEnd(exitCode: number): void;
}

/** Processes that the guest's kernel has killed for lack of memory. */
export interface GuestKilled {
  /** The name of the last one: printable ASCII, maybe empty. */
  readonly program: string;
  /** How many since the last report, at least 1. */
  readonly count: number;
}

/** The main command of a machine. */
export interface GuestWorkload {
  /**
   * Resolves when the workload runs or ran before (also if it could not be started). Rejects when the guest
   * refuses.
   */
  readonly started: Promise<void>;
  /** The host has stored the output before `offset`; the guest may send `bytes` more. */
  acknowledge(offset: number, bytes: number): void;
}

export interface Guest {
  readonly hello: GuestHello;
  configure(configuration: GuestConfiguration): Promise<void>;
  /**
   * Runs a machine's start in namespaces that are gone when this resolves, so nothing of the configuration
   * remains. A configured guest runs only its image's shell, which can write no file; rejects if a process of
   * it is left.
   */
  warmUp(configuration: GuestConfiguration): Promise<void>;
  /**
   * Throws when the request cannot be sent: channel lost, too many concurrent commands, no program, a zero
   * byte in a text, or arguments and environment larger than a message.
   */
  exec(request: GuestExecRequest): GuestExec;
  /** Whether a command with a `resumeKey` outlives this channel. Absent: false. */
  readonly keepsCommands?: boolean;
  /**
   * Throws like `exec`, and when the guest has no such command: it has ended, or the guest has not kept it.
   */
  resume?(request: GuestResumeRequest): ResumedExec;
  /** Whether `connect` may be called now. Absent: never. */
  readonly canConnect?: boolean;
  /**
   * Opens a connection: `stdin` and `stdout` are its two directions. `pid` resolves when it is established
   * and rejects with the guest's reason; `exit` resolves with 0 after an orderly end, with another code when
   * it broke. Throws like `exec`.
   */
  connect?(request: GuestConnectRequest): GuestExec;
  /** Throws like `resume`. `stderrOffset` has no effect. */
  resumeConnection?(request: GuestResumeRequest): ResumedExec;
  /** Like a command, whose streams contain what GUEST-PROTOCOL.md describes under files. */
  file(request: GuestFileRequest): GuestExec;
  /** Starts the machine's workload, once in the life of a guest, and receives its output from `offset` on. */
  workload(request: GuestWorkloadRequest): GuestWorkload;
  /** Calls back when processes were killed, at most once a minute. Absent: the guest does not say. */
  onKilled?(listener: (killed: GuestKilled) => void): void;
  /** Flushes all file systems to disk. */
  sync(): Promise<void>;
  /** Resolves when the agent has answered, which it does at once. */
  ping(): Promise<void>;
  /**
   * Stops every program of the machine, so that its memory can be copied. Nothing is sent to the guest from
   * then on before `thaw`; what is asked of it meanwhile waits. Rejects, and the programs run on, when one of
   * them does not stop. They run again by themselves after seconds of the guest's time. Absent: it cannot.
   */
  freeze?(): Promise<void>;
  /** The programs run again. Rejects when they ran again by themselves before. */
  thaw?(): Promise<void>;
  /** How many messages have come from the guest on this channel, answers to `ping` included. */
  readonly received: number;
  /**
   * Ends all processes, syncs, unmounts and powers off. Resolves when the guest has confirmed that it begins.
   */
  shutDown(): Promise<void>;
  /** Resolves when the channel is lost, with the reason. Never rejects. */
  readonly closed: Promise<string>;
  /** Closes the channel; the guest continues to run. */
  close(): void;
}

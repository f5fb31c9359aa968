/**
 * What the rest of the node agent sees of a machine's guest agent, whatever carries the bytes.
 *
 * `client.ts` implements it over the guest protocol (GUEST-PROTOCOL.md); the fake driver implements it by script.
 */
import type { Readable, Writable } from "node:stream";
import type { FileRequest } from "@flotilla/contract/link";

/** What the agent said of itself when the channel opened. */
export interface GuestHello {
  readonly protocol: number;
  readonly agentVersion: string;
  /** Whether `configure` has been done since the guest booted: true when a node agent comes back to a running guest. */
  readonly isConfigured: boolean;
  /** Milliseconds since the guest kernel started. */
  readonly uptimeMs: number;
}

/** Everything about a machine that must not be part of a boot or a template. */
export interface GuestConfiguration {
  readonly hostname: string;
  /** 32 hex; written to /etc/machine-id. */
  readonly machineId: string;
  /** Epoch milliseconds. */
  readonly now: number;
  /** At least 32 bytes, credited to the guest's random pool. */
  readonly entropy: Uint8Array;
  /** The environment of every command: the image's, then the machine's on top. */
  readonly env: Readonly<Record<string, string>>;
  readonly workdir: string;
  /** As in an image's config: `user`, `uid`, `user:group`, `uid:gid`; empty is root. */
  readonly user: string;
  /** The root disk's block device inside the guest; null when the root is already there (agent on a socketpair). */
  readonly rootDevice: string | null;
  /** The device's size, in bytes: it may have changed a moment ago, and is waited for. null: whatever it has. */
  readonly rootBytes: number | null;
  readonly nameservers: readonly string[];
  readonly address: { readonly cidr: string; readonly gateway: string } | null;
}

export interface GuestExecRequest {
  readonly argv: readonly string[];
  readonly cwd: string | null;
  readonly env: Readonly<Record<string, string>>;
  readonly user: string | null;
  readonly hasStdin: boolean;
  readonly terminal: { readonly cols: number; readonly rows: number } | null;
  /** The command outlives the channel and the exec ends as soon as it runs. */
  readonly isBackground: boolean;
  /**
   * Absent: true. false: nobody waits for `pid`, which rejects in the end. The guest then speaks once less for each command,
   * which spares a turn of the VMM and one of this process.
   */
  readonly needsPid?: boolean;
}

/** The guest runs as many commands at once as it can; nothing is wrong with it. */
export class GuestBusy extends Error {}

/** Something to be done with one path, as contract/src/link.ts describes it. */
export type GuestFileRequest = FileRequest;

/** How a command ended: an exit code, or 128 + the signal's number; 255 with a stderr text when it could not be run. */
export interface GuestExit {
  readonly exitCode: number;
}

/** A running command. */
export interface GuestExec {
  /** In the guest; resolves as soon as it runs. */
  readonly pid: Promise<number>;
  readonly stdin: Writable;
  /** Not reading one of them stops only this command. */
  readonly stdout: Readable;
  readonly stderr: Readable;
  /**
   * Resolves after both outputs have been delivered in full to those who read them; rejects when the channel is lost. An
   * output that nobody has begun to read by then does not hold it back, and can still be read.
   */
  readonly exit: Promise<GuestExit>;
  resize(size: { cols: number; rows: number }): void;
  /** Sends a signal to the command's process group. */
  signal(signal: number): void;
  /**
   * Kills the command and every descendant; with a grace (milliseconds), they are told first that their terminal is gone
   * (SIGHUP to the command), and what is left then is killed. `exit` still resolves.
   */
  kill(graceMs?: number): void;
}

export interface GuestWorkloadRequest {
  readonly argv: readonly string[];
  /** So much of what it has said since the guest booted is safe already. */
  readonly offset: number;
  /**
   * It has said something; `offset` is that of the first byte, and a gap before it was dropped in the guest. The bytes are
   * the caller's only until this returns. At most WORKLOAD_WINDOW_BYTES come before some were taken.
   */
  onOutput(offset: number, bytes: Buffer): void;
  /** It has ended, after all that was heard until now. May come again from a guest that is asked again. */
  onEnd(exitCode: number): void;
}

/** The one command that a machine was made for. */
export interface GuestWorkload {
  /** Resolves when it runs, or has run before; what can not be run has ended. Rejects when the guest refuses. */
  readonly started: Promise<void>;
  /** What comes before `offset` is safe, and there is room for `bytes` more, of those that came. */
  taken(offset: number, bytes: number): void;
}

export interface Guest {
  readonly hello: GuestHello;
  configure(configuration: GuestConfiguration): Promise<void>;
  /**
   * Goes the way of a machine's start, in namespaces that are gone when this resolves: nothing of the configuration
   * stays. Refused when the guest is a machine already.
   */
  warmUp(configuration: GuestConfiguration): Promise<void>;
  /**
   * Throws when the request cannot be sent: channel lost, too many commands at once, no program, a zero byte in a text,
   * or more arguments and environment than a message holds.
   */
  exec(request: GuestExecRequest): GuestExec;
  /** Like a command, whose streams hold what GUEST-PROTOCOL.md says of files. */
  file(request: GuestFileRequest): GuestExec;
  /** Starts the machine's workload, once in the life of a guest, and hears what it says from `offset` on. */
  workload(request: GuestWorkloadRequest): GuestWorkload;
  /** Round trip; rejects after `timeoutMs`. */
  ping(timeoutMs: number): Promise<void>;
  /** Flushes all file systems to disk. */
  sync(): Promise<void>;
  /** Ends all processes, syncs, unmounts and powers off. Resolves when the guest has said that it begins. */
  shutDown(): Promise<void>;
  /** Resolves when the channel is lost, with the reason. Never rejects. */
  readonly closed: Promise<string>;
  /** Lets go of the channel; the guest runs on. */
  close(): void;
}

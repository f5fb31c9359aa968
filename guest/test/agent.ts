/**
 * Agents for tests: the real program, run on this host over a socket, optionally with sanitizers.
 *
 * Owns the processes it starts, their control groups, and guest/build/, where a build is kept until its
 * sources change.
 */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import { fileURLToPath } from "node:url";
import type { BulkDisk } from "@flotilla/node/guest/bulk-disk";
import { connectGuest } from "@flotilla/node/guest/client";
import type { Guest, GuestExec, GuestExecRequest } from "@flotilla/node/guest/guest";
import * as shared from "../../test/support/until.ts";

export const GUEST_DIRECTORY = fileURLToPath(new URL("..", import.meta.url));
const CGROUP_MOUNTS = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];

/** A hash of everything a build depends on. */
function sourceKey(): string {
  const hash = createHash("sha256");
  for (const directory of [GUEST_DIRECTORY, join(GUEST_DIRECTORY, "test")]) {
    for (const name of readdirSync(directory).sort()) {
      if (/\.([ch]|sh)$/.test(name)) hash.update(name).update(readFileSync(join(directory, name)));
    }
  }
  return hash.digest("hex").slice(0, 16);
}

/** The directory with build.sh's output for the current sources. Throws with the compiler's errors. */
export function build(kind: "agent" | "sanitized" | "fuzz"): string {
  const builds = join(GUEST_DIRECTORY, "build");
  const out = join(builds, `${kind}-${sourceKey()}`);
  if (existsSync(out)) return out;
  mkdirSync(builds, { recursive: true });
  const unfinished = mkdtempSync(join(builds, "new-"));
  const made = spawnSync("sh", [join(GUEST_DIRECTORY, "build.sh"), unfinished, kind], { encoding: "utf8" });
  try {
    if (made.status !== 0) throw new Error(`guest/build.sh failed:\n${made.stderr}`);
    renameSync(unfinished, out);
    for (const name of readdirSync(builds)) {
      const isOld = name.startsWith(`${kind}-`) && join(builds, name) !== out;
      if (isOld) rmSync(join(builds, name), { recursive: true, force: true });
    }
  } catch (error) {
    rmSync(unfinished, { recursive: true, force: true });
    // Another test may have finished first; its result is the same.
    if (!existsSync(out)) throw error;
  }
  return out;
}

export interface TestAgent {
  readonly socket: Duplex;
  readonly pid: number;
  readonly hasCgroup: boolean;
  /** The directories of its commands' control groups. */
  cgroups(): readonly string[];
  /** Its whole standard error: sanitizers report there. */
  log(): string;
  /** Its resident memory in KiB. */
  residentKb(): Promise<number>;
  connect(socket?: Duplex, bulk?: BulkDisk): Promise<Guest>;
  /** Ends the socket and resolves with the agent's exit code. */
  end(): Promise<number | null>;
}

/** A directory for control groups, or undefined on a host without version 2 or without the permission. */
function makeCgroup(): string | undefined {
  for (const mount of CGROUP_MOUNTS) {
    if (!existsSync(join(mount, "cgroup.procs"))) continue;
    try {
      return mkdtempSync(join(mount, "flotilla-guest-test-"));
    } catch {
      return undefined;
    }
  }
  return undefined;
}

/** Kills all processes in the group and below, and removes it. */
async function removeCgroup(path: string): Promise<void> {
  writeFileSync(join(path, "cgroup.kill"), "1");
  await until(() => readFileSync(join(path, "cgroup.events"), "utf8").includes("populated 0"));
  for (const group of cgroupsIn(path)) rmdirSync(group);
  rmdirSync(path);
}

function cgroupsIn(path: string): readonly string[] {
  const entries = readdirSync(path, { withFileTypes: true });
  return entries.filter((entry) => entry.isDirectory()).map(({ name }) => join(path, name));
}

export interface AgentOptions {
  readonly isSanitized?: boolean;
  /** Whether it gets a directory for control groups, if the host has one. */
  readonly hasCgroup?: boolean;
  /** How long a command waits to be resumed, in milliseconds. */
  readonly resumeMs?: number;
  /** When stopped programs run again by themselves, in milliseconds. */
  readonly thawMs?: number;
  /** A file that it reads as /proc/timer_list. */
  readonly timerListPath?: string;
  /** A pipe that it reads as /dev/kmsg. */
  readonly kernelLogPath?: string;
}

export function startAgent(options: AgentOptions = {}): TestAgent {
  const isSanitized = options.isSanitized ?? true;
  const program = isSanitized ? join(build("sanitized"), "agent-sanitized") : join(build("agent"), "agent");
  const cgroup = options.hasCgroup ? makeCgroup() : undefined;
  const args = ["--fd", "3", ...(cgroup === undefined ? [] : ["--cgroup", cgroup])];
  if (options.resumeMs !== undefined) args.push("--resume-ms", String(options.resumeMs));
  if (options.thawMs !== undefined) args.push("--thaw-ms", String(options.thawMs));
  if (options.timerListPath !== undefined) args.push("--timer-list", options.timerListPath);
  if (options.kernelLogPath !== undefined) args.push("--kernel-log", options.kernelLogPath);
  const child: ChildProcess = spawn(program, args, {
    stdio: ["ignore", "ignore", "pipe", "pipe"],
    env: { ASAN_OPTIONS: "detect_leaks=0", UBSAN_OPTIONS: "print_stacktrace=1" },
  });
  let log = "";
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    log += text;
  });
  const ended = new Promise<number | null>((resolve) => child.once("close", (code) => resolve(code)));
  const socket = child.stdio[3] as unknown as Duplex;
  const pid = child.pid;
  if (pid === undefined) throw new Error(`cannot start ${program}`);
  return {
    socket,
    pid,
    hasCgroup: cgroup !== undefined,
    cgroups: () => (cgroup === undefined ? [] : cgroupsIn(cgroup)),
    log: () => log,
    residentKb: async () => {
      return Number(/VmRSS:\s+(\d+)/.exec(await readFile(`/proc/${pid}/status`, "utf8"))?.[1]);
    },
    connect: (over = socket, bulk) => connectGuest(over, { helloTimeoutMs: 10_000, bulk: bulk ?? null }),
    end: async () => {
      socket.destroy();
      const code = await ended;
      if (cgroup !== undefined) await removeCgroup(cgroup);
      return code;
    },
  };
}

/** Waits until the condition holds; fails after some seconds. */
export async function until(condition: () => boolean): Promise<void> {
  await shared.until(condition, { what: condition.toString(), deadlineMs: 15_000 });
}

export function request(argv: readonly string[], more: Partial<GuestExecRequest> = {}): GuestExecRequest {
  return { argv, cwd: null, env: {}, user: null, hasStdin: false, terminal: null, isBackground: false, ...more };
}

export interface Outcome {
  readonly stdout: string;
  readonly stderr: string;
  readonly exitCode: number;
}

/** Collects both outputs until the command ends. */
export async function outcome(exec: GuestExec): Promise<Outcome> {
  const stdout: Buffer[] = [];
  const stderr: Buffer[] = [];
  exec.stdout.on("data", (chunk: Buffer) => stdout.push(chunk));
  exec.stderr.on("data", (chunk: Buffer) => stderr.push(chunk));
  const { exitCode } = await exec.exit;
  return { stdout: Buffer.concat(stdout).toString(), stderr: Buffer.concat(stderr).toString(), exitCode };
}

/** How many processes of this host have the text in their command line. */
export function processesWith(marker: string): number {
  return readdirSync("/proc").filter((name) => {
    if (!/^\d+$/.test(name)) return false;
    try {
      return readFileSync(`/proc/${name}/cmdline`, "utf8").includes(marker);
    } catch {
      return false;
    }
  }).length;
}

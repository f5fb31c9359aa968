/**
 * Runs a Debian program on hostile input: an image layer, or a tree unpacked from one.
 *
 * The launcher of VMMs (node/native/jail.c) gives it its own root directory in private namespaces: /usr
 * (read-only, with the links into it), one writable directory as /files (no devices, no setuid, no programs),
 * and inputs read-only below /input. It has no /proc, no network and sees no other process. It is root with
 * only the named capabilities, so that owners and modes come out right, and cannot gain more. It is in its
 * own user namespace, where a capability has no effect outside /files, and behind a filter of system calls. A
 * layer that exploits the program can write only to its own tree, and read nothing else of the host. It can
 * leave a link there, which this process would follow as root: `requireLeft` looks at what is there first.
 *
 * Always:
 * - the program dies with the node agent (parent death signal, and a pid namespace that ends with its first
 *   process), on cancellation and at its deadline;
 * - when this function returns, none of its processes is alive;
 * - mounts exist only in its namespace, so a crash leaves nothing to unmount;
 * - it has at most MEMORY_BYTES_MAX of memory: on a host without any left the kernel would end machines
 *   first;
 * - none has `dac_read_search`, which opens any file of the host by its handle where the kernel has no user
 *   namespaces.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { lstat, mkdir, readlink } from "node:fs/promises";
import { basename, join } from "node:path";
import { deadlineSignal } from "@flotilla/base/abort";
import type { Clock } from "@flotilla/base/clock";
import { TOOL_SCORE } from "../host/out-of-memory.ts";

/** Numbers of the kernel. */
const CAPABILITIES = { chown: 0, dac_override: 1, fowner: 3, fsetid: 4, mknod: 27, setfcap: 31 } as const;

export type Capability = keyof typeof CAPABILITIES;

export interface ConfinedRun {
  /** The program of node/native/jail.c. */
  readonly launcher: string;
  /** Its `files` becomes /files. Created if missing. */
  readonly directory: string;
  /** Name below /input → file or directory of the host. */
  readonly inputs?: Readonly<Record<string, string>>;
  /**
   * With `mknod` it is not in its own user namespace, where the kernel makes no device files. /files has none
   * that can be opened.
   */
  readonly capabilities: readonly Capability[];
  readonly argv: readonly string[];
  readonly timeoutMs: number;
  /** Processor time of each process; more ends it. Absent: only `timeoutMs` limits it. */
  readonly cpuSeconds?: number;
  readonly signal: AbortSignal;
  readonly clock: Clock;
}

/** The program failed. `detail` is the end of its standard error, on one line. */
export class ConfinedFailure extends Error {
  readonly detail: string;

  constructor(program: string, detail: string) {
    super(`${program} failed: ${detail}`);
    this.detail = detail;
  }
}

/** A shell's exit code for a process killed by SIGKILL. */
const KILLED_CODE = 128 + 9;
/** The unpacking tool needs 2 KB for a file with the longest path. */
const MEMORY_BYTES_MAX = 2 ** 30;
const OUTPUT_CHARACTERS_MAX = 64 * 1024;
const DETAIL_CHARACTERS_MAX = 300;

/**
 * The namespaces end with the agent, and their processes with them. The priority is low, because machines
 * come first.
 */
const ENTER_COMMAND = "setpriv --pdeathsig=KILL -- unshare --pid --uts --fork --kill-child=KILL -- nice -n 5".split(
  " ",
);
/** Links into /usr where it has been merged with the root. */
const USR_NAMES = ["bin", "sbin", "lib", "lib64"];
const ENVIRONMENT = [
  "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
  "HOME=/",
  "LC_ALL=C",
  // There is no list of mounted file systems, which mkfs looks for.
  "EXT2FS_NO_MTAB_OK=1",
];

/** The command line of a confined program, in the syntax of jail.c. */
async function commandOf(run: ConfinedRun): Promise<readonly string[]> {
  const views = (await Promise.all(USR_NAMES.map(viewOf))).flat();
  const steps: readonly (readonly (string | number)[])[] = [
    ["net"],
    ["read", "/usr", "/usr"],
    ...views,
    ...Object.entries(run.inputs ?? {}).map(([name, path]) => ["data", path, `/input/${name}`]),
    ["write", join(run.directory, "files"), "/files"],
    ...ENVIRONMENT.map((variable) => ["env", variable]),
    ["limit", "data", MEMORY_BYTES_MAX],
    ...(run.cpuSeconds === undefined ? [] : [["limit", "cpu", run.cpuSeconds]]),
    // When memory runs out, the kernel kills it and machines before anything else on the host.
    ["score", TOOL_SCORE],
    ...run.capabilities.map((name) => ["keep", CAPABILITIES[name]]),
    ...(run.capabilities.includes("mknod") ? [] : [["users"]]),
    ["filter"],
    ["dies"],
  ];
  return [...ENTER_COMMAND, run.launcher, ...steps.flat().map(String), "--", "/usr/bin/env", ...run.argv];
}

async function viewOf(name: string): Promise<readonly (readonly string[])[]> {
  const path = `/${name}`;
  const facts = await lstat(path).catch(() => undefined);
  if (facts?.isSymbolicLink() === true) return [["link", await readlink(path), path]];
  return facts?.isDirectory() === true ? [["read", path, path]] : [];
}

/** Returns the last 64 KiB of standard output. Throws ConfinedFailure, or the signal's reason. */
export async function runConfined(run: ConfinedRun): Promise<string> {
  await mkdir(join(run.directory, "files"), { recursive: true });
  const [starter = "", ...argv] = await commandOf(run);
  const deadline = deadlineSignal(run.clock, run.timeoutMs, run.signal);
  try {
    deadline.signal.throwIfAborted();
    const child = spawn(starter, argv, {
      stdio: ["ignore", "pipe", "pipe"],
      env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin" },
      signal: deadline.signal,
      killSignal: "SIGKILL",
    });
    let [output, errors, failure] = ["", "", ""];
    child.stdout
      .setEncoding("utf8")
      .on("data", (text: string) => (output = tail(output + text, OUTPUT_CHARACTERS_MAX)));
    child.stderr
      .setEncoding("utf8")
      .on("data", (text: string) => (errors = tail(errors + text, OUTPUT_CHARACTERS_MAX)));
    child.on("error", (error) => (failure = error.message));
    // `close` comes after the last process that holds the pipes has ended, so nothing writes any more.
    const [code, killedBy] = (await once(child, "close")) as [number | null, string | null];
    run.signal.throwIfAborted();
    const program = run.argv[0] ?? "the program";
    if (deadline.signal.aborted) throw new ConfinedFailure(program, `it ran for more than ${run.timeoutMs / 1000} s`);
    if (run.cpuSeconds !== undefined && (killedBy === "SIGKILL" || code === KILLED_CODE))
      throw new ConfinedFailure(
        program,
        `it was killed, most likely for using more than ${run.cpuSeconds} s of processor time`,
      );
    if (code !== 0) throw new ConfinedFailure(program, oneLine(errors) || failure || `exit code ${code}`);
    return output;
  } finally {
    deadline.dispose();
  }
}

/** Throws an Error when the programs have left anything but a file or a directory at a path below /files. */
export async function requireLeft(kind: "file" | "directory", path: string): Promise<void> {
  const found = await lstat(path).catch(() => undefined);
  if (kind === "file" ? found?.isFile() : found?.isDirectory()) return;
  throw new Error(`the program that read it left no ${kind} called ${basename(path)}`);
}

function tail(text: string, length: number): string {
  return text.length > length ? text.slice(-length) : text;
}

/** The end of a program's error output, printable: it may contain file names of the image. */
function oneLine(text: string): string {
  const clean = text.replace(/[^\x20-\x7e]+/g, " ").trim();
  return clean.length > DETAIL_CHARACTERS_MAX ? `…${clean.slice(-DETAIL_CHARACTERS_MAX)}` : clean;
}

/**
 * Runs a Debian program on hostile input: an image layer, or a tree unpacked from one.
 *
 * The program gets its own root directory in private namespaces: /usr (read-only, with the links into it),
 * one writable directory as /files (no devices, no setuid, no programs), and inputs read-only below /input.
 * It has no /proc, no network and sees no other process. It is root with only the named capabilities, so that
 * owners and modes come out right, and cannot gain more. A layer that exploits the unpacking tool can write
 * only to its own tree.
 *
 * Always:
 * - the program dies with the node agent (parent death signal, and a pid namespace that ends with its first
 *   process), on cancellation and at its deadline;
 * - when this function returns, none of its processes is alive;
 * - mounts exist only in its namespace, so a crash leaves nothing to unmount.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { deadlineSignal } from "@flotilla/base/abort";
import type { Clock } from "@flotilla/base/clock";
import { TOOL_SCORE } from "../host/out-of-memory.ts";

export interface ConfinedRun {
  /** Its `files` becomes /files; its `root` is the mount point of the new root. Created if missing. */
  readonly directory: string;
  /** Name below /input → file or directory of the host. */
  readonly inputs?: Readonly<Record<string, string>>;
  /** Without the prefix, such as `chown`. */
  readonly capabilities: readonly string[];
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
const OUTPUT_CHARACTERS_MAX = 64 * 1024;
const DETAIL_CHARACTERS_MAX = 300;

/** Arguments of setpriv. The namespaces end with the agent, and their processes with them. */
const ENTER_COMMAND = "--pdeathsig=KILL -- unshare --mount --pid --net --ipc --uts --fork --kill-child=KILL -- sh -c";

/**
 * $1 directory, $2 capabilities for setpriv, $3 processor seconds or `unlimited`, $4 number of inputs, then
 * pairs of name and path, then the program. It runs at low priority because machines come first. When memory
 * runs out, the kernel kills it and machines before anything else on the host.
 */
const ENTER_SCRIPT = `
set -eu
echo ${TOOL_SCORE} >/proc/self/oom_score_adj
directory=$1; capabilities=$2; cpu=$3; inputs=$4; shift 4
root=$directory/root
mount -t tmpfs -o size=16m,mode=755,nosuid,nodev,noexec flotilla "$root"
mkdir "$root/usr" "$root/files" "$root/tmp" "$root/dev" "$root/etc" "$root/input"
# mkfs looks here for mounted file systems and warns when the file is missing.
: > "$root/etc/mtab"
mount --bind /usr "$root/usr"
mount -o remount,bind,ro,nosuid,nodev "$root/usr"
for name in bin sbin lib lib64; do
  if [ -L "/$name" ]; then cp -P "/$name" "$root/$name"
  elif [ -d "/$name" ]; then
    mkdir "$root/$name"; mount --bind "/$name" "$root/$name"; mount -o remount,bind,ro,nosuid,nodev "$root/$name"
  fi
done
while [ "$inputs" -gt 0 ]; do
  if [ -d "$2" ]; then mkdir "$root/input/$1"; else : > "$root/input/$1"; fi
  mount --bind "$2" "$root/input/$1"
  mount -o remount,bind,ro,nosuid,nodev,noexec "$root/input/$1"
  inputs=$((inputs - 1)); shift 2
done
mount --bind "$directory/files" "$root/files"
mount -o remount,bind,nosuid,nodev,noexec "$root/files"
mount -o remount,ro "$root"
cd "$root"
ulimit -t "$cpu"
exec nice -n 5 chroot "$root" /usr/bin/setpriv --no-new-privs --inh-caps=-all --bounding-set="$capabilities" -- "$@"
`;

/** Returns the last 64 KiB of standard output. Throws ConfinedFailure, or the signal's reason. */
export async function runConfined(run: ConfinedRun): Promise<string> {
  await mkdir(join(run.directory, "root"), { recursive: true });
  await mkdir(join(run.directory, "files"), { recursive: true });
  const inputs = Object.entries(run.inputs ?? {});
  const bounding = ["-all", ...run.capabilities.map((name) => `+${name}`)].join(",");
  const deadline = deadlineSignal(run.clock, run.timeoutMs, run.signal);
  try {
    deadline.signal.throwIfAborted();
    const child = spawn(
      "setpriv",
      [
        ...ENTER_COMMAND.split(" "),
        ENTER_SCRIPT,
        "confine",
        run.directory,
        bounding,
        String(run.cpuSeconds ?? "unlimited"),
        String(inputs.length),
        ...inputs.flat(),
        ...run.argv,
      ],
      {
        stdio: ["ignore", "pipe", "pipe"],
        env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", HOME: "/tmp", LC_ALL: "C" },
        signal: deadline.signal,
        killSignal: "SIGKILL",
      },
    );
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

function tail(text: string, length: number): string {
  return text.length > length ? text.slice(-length) : text;
}

/** The end of a program's error output, printable: it may contain file names of the image. */
function oneLine(text: string): string {
  const clean = text.replace(/[^\x20-\x7e]+/g, " ").trim();
  return clean.length > DETAIL_CHARACTERS_MAX ? `…${clean.slice(-DETAIL_CHARACTERS_MAX)}` : clean;
}

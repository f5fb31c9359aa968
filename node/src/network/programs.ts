/**
 * Runs the programs that change the network: nft and ip, through nsenter inside a machine's namespace.
 *
 * Always: a program gets its input on standard input; its error output is part of the error. One that `run`
 * starts is killed after PROGRAM_MS. A `PrestartedProgram` is spawned before its input is known, so that a
 * machine's start does not wait for the spawn. If this agent dies first, the program's input ends empty and
 * it changes nothing.
 */
import { type ChildProcessByStdio, spawn } from "node:child_process";
import type { Readable, Writable } from "node:stream";

const PROGRAM_MS = 20_000;
const OUTPUT_BYTES_MAX = 4 * 2 ** 20;

type Child = ChildProcessByStdio<Writable, Readable, Readable>;

/** Returns the standard output. Rejects with the program's error output when it ends with anything but 0. */
export function run(argv: readonly string[], input = ""): Promise<string> {
  const change = new PrestartedProgram(argv, PROGRAM_MS);
  return change.run(input);
}

/** Arguments that run a program in the network namespace of a process. */
export function inNamespaceOf(pid: number, argv: readonly string[]): readonly string[] {
  return ["nsenter", `--net=/proc/${pid}/ns/net`, "--", ...argv];
}

export const NFT = ["nft", "-f", "-"] as const;
/** Its input has one command in each line; the first that fails is the last one. */
export const IP = ["ip", "-batch", "-"] as const;

export class PrestartedProgram {
  readonly #argv: readonly string[];
  readonly #child: Child;
  readonly #ended: Promise<string>;

  constructor(argv: readonly string[], timeoutMs?: number) {
    this.#argv = argv;
    const [program = "", ...rest] = argv;
    const timeout = timeoutMs === undefined ? {} : { timeout: timeoutMs, killSignal: "SIGKILL" as const };
    this.#child = spawn(program, rest, { cwd: "/", stdio: ["pipe", "pipe", "pipe"], ...timeout });
    this.#ended = this.#watch();
    this.#ended.catch(() => {}); // The caller may never wait for it.
  }

  /** Gives the program its input and waits for its end. */
  run(text: string): Promise<string> {
    this.#child.stdin.end(text);
    return this.#ended;
  }

  /** Kills the program, which is not needed. */
  cancel(): void {
    this.#child.kill("SIGKILL");
  }

  #watch(): Promise<string> {
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    const name = this.#argv.join(" ");
    const output = collect(this.#child.stdout);
    const errors = collect(this.#child.stderr);
    // The program may end before it has read everything; its exit code says more than this error.
    this.#child.stdin.on("error", () => {});
    this.#child.once("error", (error: NodeJS.ErrnoException) => {
      reject(
        new Error(error.code === "ENOENT" ? `${this.#argv[0]} is not installed; run scripts/setup` : error.message),
      );
    });
    this.#child.once("close", (code, signal) => {
      if (code === 0) resolve(output());
      else reject(new Error(`${name} ended with ${signal ?? code}: ${errors().trim().slice(0, 500)}`));
    });
    return promise;
  }
}

function collect(stream: Readable): () => string {
  const parts: Buffer[] = [];
  let bytes = 0;
  stream.on("data", (part: Buffer) => {
    bytes += part.byteLength;
    if (bytes <= OUTPUT_BYTES_MAX) parts.push(part);
  });
  return () => Buffer.concat(parts).toString("utf8");
}

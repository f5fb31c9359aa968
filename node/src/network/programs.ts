/**
 * Runs the programs that change the network: nft, ip, and nsenter where it is a machine's.
 *
 * Always: a program is given its text on standard input and ended when it takes too long; what it complains about is
 * in the error. A `WaitingChange` is a program that was started before its text is known, so that a machine's start
 * does not wait for a process to be made; when this agent dies first, its input ends and it changes nothing.
 */
import { type ChildProcessByStdio, spawn } from "node:child_process";
import type { Readable, Writable } from "node:stream";

const PROGRAM_MS = 20_000;
const OUTPUT_BYTES_MAX = 4 * 2 ** 20;

type Child = ChildProcessByStdio<Writable, Readable, Readable>;

/** The standard output. Rejects with what the program said when it ends with anything but 0. */
export function run(argv: readonly string[], input = ""): Promise<string> {
  const change = new WaitingChange(argv, PROGRAM_MS);
  return change.run(input);
}

/** Arguments that run a program in the network namespace of a process. */
export function inNamespaceOf(pid: number, argv: readonly string[]): readonly string[] {
  return ["nsenter", `--net=/proc/${pid}/ns/net`, "--", ...argv];
}

export const NFT = ["nft", "-f", "-"] as const;

export class WaitingChange {
  readonly #argv: readonly string[];
  readonly #child: Child;
  readonly #ended: Promise<string>;

  constructor(argv: readonly string[], timeoutMs?: number) {
    this.#argv = argv;
    const [program = "", ...rest] = argv;
    const timeout = timeoutMs === undefined ? {} : { timeout: timeoutMs, killSignal: "SIGKILL" as const };
    this.#child = spawn(program, rest, { cwd: "/", stdio: ["pipe", "pipe", "pipe"], ...timeout });
    this.#ended = this.#watch();
    this.#ended.catch(() => {}); // Nobody may ever ask.
  }

  /** Gives it its text and waits for its end. */
  run(text: string): Promise<string> {
    this.#child.stdin.end(text);
    return this.#ended;
  }

  /** It is not needed. */
  cancel(): void {
    this.#child.kill("SIGKILL");
  }

  #watch(): Promise<string> {
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    const name = this.#argv.join(" ");
    const output = collect(this.#child.stdout);
    const complaints = collect(this.#child.stderr);
    // It may end before it has read all: how it ended says more.
    this.#child.stdin.on("error", () => {});
    this.#child.once("error", (error: NodeJS.ErrnoException) => {
      reject(
        new Error(error.code === "ENOENT" ? `${this.#argv[0]} is not installed; run scripts/setup` : error.message),
      );
    });
    this.#child.once("close", (code, signal) => {
      if (code === 0) resolve(output());
      else reject(new Error(`${name} ended with ${signal ?? code}: ${complaints().trim().slice(0, 500)}`));
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

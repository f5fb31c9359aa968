/**
 * The PostgreSQL of a place in which test files run one after the other: so a file gets a database in
 * milliseconds, and need not start a server.
 *
 * Owns a socket, of which a file reads the connection, and the program behind it
 * (server/test/support/lent-cluster.ts), which starts with the first file that asks.
 *
 * Always: a file has it alone, and finds only the template. It ends with this process, however that ends.
 */
import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";

const PROGRAM = path.resolve(import.meta.dirname, "../../server/test/support/lent-cluster.ts");

interface Cluster {
  readonly child: ChildProcessByStdio<Writable, Readable, null>;
  readonly lines: AsyncIterator<string>;
  readonly connection: string;
}

export class LentPostgres {
  /** The path of the socket, for FLOTILLA_TEST_POSTGRES. */
  readonly address: string;
  readonly #folder = mkdtempSync(path.join(tmpdir(), "flotilla-lent-"));
  readonly #server = createServer((socket) => {
    this.#cluster ??= begin();
    this.#cluster.then(
      ({ connection }) => socket.end(connection),
      (error: Error) => socket.destroy(error),
    );
    socket.on("error", () => undefined);
  });
  #cluster: Promise<Cluster> | undefined;
  /** Processor time until the last file ended. */
  #cpuMs = 0;

  constructor() {
    this.address = path.join(this.#folder, "socket");
    this.#server.listen(this.address);
  }

  /**
   * Removes what the last file made, and returns the milliseconds of processor time that the file cost. A
   * cluster that does not answer is replaced for the next file that asks.
   */
  async clear(): Promise<number> {
    if (this.#cluster === undefined) return 0;
    const before = this.#cpuMs;
    try {
      const { child, lines } = await this.#cluster;
      child.stdin.write("\n");
      const answer = await lines.next();
      if (answer.done === true) throw new Error("it has ended");
      this.#cpuMs = Number(answer.value);
      return this.#cpuMs - before;
    } catch {
      this.#cluster = undefined;
      this.#cpuMs = 0;
      return 0;
    }
  }

  async stop(): Promise<void> {
    this.#server.close();
    const child = await this.#cluster?.then((cluster) => cluster.child).catch(() => undefined);
    child?.stdin.end();
    if (child !== undefined && child.exitCode === null) await once(child, "exit");
    rmSync(this.#folder, { recursive: true });
  }
}

/** In its own group, because signals of a terminal are not for it: it ends with its input. */
async function begin(): Promise<Cluster> {
  const child = spawn(process.execPath, [PROGRAM], { stdio: ["pipe", "pipe", "inherit"], detached: true });
  child.stdin.on("error", () => undefined);
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const first = await lines.next();
  if (first.done === true) throw new Error("PostgreSQL for test files did not start: see its message");
  return { child, lines, connection: first.value };
}

/**
 * One request about a path, under way in a machine: its first line, its content and its end.
 *
 * Always: the machine is started if it is stopped; content is read no faster than it is taken. Counts as use of the
 * machine while it runs, and not as a command. `..` in a path is resolved by name here, as clients do it in URLs: what
 * was written to `a/../b` is read from there also when there is no `a`.
 */
import { posix } from "node:path";
import type { FileRequest } from "@flotilla/contract/link";
import { type OpenExec, openOnNode } from "../../link/open-exec.ts";
import { type InMachineOptions, inRunningMachine } from "../running.ts";
import type { MachineServices } from "../services.ts";
import { fileRefusal } from "./answer.ts";
import { nodeOf } from "../record.ts";

const NEWLINE = 0x0a;
const LINE_BYTES_MAX = 256;
const ERROR_BYTES_MAX = 8 * 1024;

type TakeContent = (chunk: Uint8Array) => void | Promise<void>;

export interface FileTarget extends InMachineOptions {
  /** As the caller wrote it. */
  readonly path: string;
}

export interface FileWork {
  readonly exec: OpenExec;
  /** What the agent said first, without the line's end; empty when it had nothing to say. */
  readonly firstLine: string;
  /** Rejects with a Refusal when it failed. */
  readonly done: Promise<void>;
}

/** Resolves with the first line. Throws a Refusal when the machine or its agent refuses. */
export async function beginFileWork(
  services: MachineServices,
  target: FileTarget,
  request: Omit<FileRequest, "path">,
  takeContent: TakeContent,
): Promise<FileWork> {
  const { link, activity } = services;
  const { id, signal, path } = target;
  const start = {
    argv: [],
    cwd: null,
    env: {},
    user: null,
    timeoutMs: null,
    isBackground: false,
    hasStdin: request.operation === "write",
    terminal: null,
    file: { ...request, path: posix.normalize(`/${path}`) },
  };
  const exec = await inRunningMachine(services, target, (machine) => {
    const node = nodeOf(machine);
    return openOnNode(link, node, { tenantId: target.tenantId, machineId: id, start, signal });
  });
  activity.execBegan(id);
  const answer = new Answer(takeContent);
  const done = exec
    .run({ onOutput: (stream, chunk) => answer.take(stream, chunk) })
    .then(({ exitCode }) => {
      if (exitCode !== 0) throw fileRefusal(answer.error, path);
    })
    .finally(() => activity.execEnded(id, null, 0));
  // A waiting caller gets the error; one that has left does not.
  done.catch(() => undefined);
  const firstLine = await Promise.race([answer.firstLine, done.then(() => "")]);
  return { exec, firstLine, done };
}

/** Tells the first line from the content. */
class Answer {
  readonly firstLine: Promise<string>;
  error = "";
  readonly #takeContent: TakeContent;
  readonly #line = Promise.withResolvers<string>();
  #lineSoFar: Buffer | null = Buffer.alloc(0);

  constructor(takeContent: TakeContent) {
    this.#takeContent = takeContent;
    this.firstLine = this.#line.promise;
  }

  take(stream: "stdout" | "stderr", chunk: Uint8Array): void | Promise<void> {
    if (stream === "stderr") {
      if (this.error.length < ERROR_BYTES_MAX) this.error += Buffer.from(chunk).toString("utf8");
      return;
    }
    if (this.#lineSoFar === null) return this.#takeContent(chunk);
    const bytes = Buffer.concat([this.#lineSoFar, chunk]);
    const end = bytes.indexOf(NEWLINE);
    if (end < 0 && bytes.byteLength <= LINE_BYTES_MAX) {
      this.#lineSoFar = bytes;
      return;
    }
    this.#lineSoFar = null;
    this.#line.resolve(bytes.toString("utf8", 0, end < 0 ? LINE_BYTES_MAX : end));
    const content = bytes.subarray(end + 1);
    return content.byteLength > 0 ? this.#takeContent(content) : undefined;
  }
}

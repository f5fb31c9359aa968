/**
 * What copying a file and copying a directory share.
 *
 * Always: a local file keeps its old content until the new content is complete. Its directory entry is
 * replaced, also when it is a link: nothing is written through a link.
 */
import { randomBytes } from "node:crypto";
import { createWriteStream } from "node:fs";
import { rename, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { Readable, type Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import { FlotillaError } from "@flotilla/sdk";
import { Failure, localFailure, undecodedText } from "../failure.ts";

/** One side of the copy. */
export type CopyEnd =
  | { readonly kind: "machine"; readonly machine: string; readonly path: string }
  | { readonly kind: "local"; readonly path: string };

/** A file of a machine. */
export type MachineFile = Pick<CopyEnd & { readonly kind: "machine" }, "machine" | "path">;

const EXECUTABLE = 0o111;
const OTHERS_MAY_READ = 0o044;

/**
 * The permissions that a copy in a machine has to be given, as `chmod` takes them; null for a file that
 * everybody may read and none execute, as new files there are. An executable stays executable, and what is
 * private stays so.
 */
export function permissionsOf(mode: number): string | null {
  const isPlain = (mode & EXECUTABLE) === 0 && (mode & OTHERS_MAY_READ) === OTHERS_MAY_READ;
  return isPlain ? null : (mode & 0o777).toString(8);
}

/** As users write it: `hello:/etc/hosts`. */
export const fileText = ({ machine, path }: MachineFile): string => `${machine}:${path}`;

/** Makes a call about a file of a machine. Throws a refusal whose text has the file as users write it. */
export async function inMachine<T>(file: MachineFile, call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (error) {
    if (!(error instanceof FlotillaError) || error.status === 0) throw error;
    const { status, code, requestId, call: name, details } = error;
    const undecoded = code === "not_found" ? undecodedText(file.path) : "";
    if (undecoded !== "") throw new Failure(`${fileText(file)}: ${undecoded}`);
    const text = namingFile(error.text, file);
    throw new FlotillaError({ status, code, requestId, call: name, text, details }, { cause: error });
  }
}

/** The server's path is that of the URL, without the slash at its beginning. */
function namingFile(text: string, file: MachineFile): string {
  const path = file.path.replace(/^\//, "");
  const named = [" ", ":"].reduce(
    (sentence, end) => sentence.replace(` ${path}${end}`, () => ` ${fileText(file)}${end}`),
    ` ${text} `,
  );
  return named.slice(1, -1);
}

export const megabytes = (bytes: number): string => `${(bytes / 1e6).toFixed(1)} MB`;

/** The content of a file of a machine. Throws a Failure when the connection breaks. */
export async function* contentOf(answer: Response, file: MachineFile): AsyncGenerator<Uint8Array, void, undefined> {
  try {
    yield* answer.body ?? [];
  } catch {
    throw brokenTransfer(file);
  }
}

export const brokenTransfer = (file: MachineFile): Failure =>
  new Failure(`the connection broke while ${fileText(file)} was read`, "try again");

/**
 * What `source` reads from a local file, as the body of a request, through `meter`. Fails with a Failure that
 * names the file.
 */
export function bodyOf(source: Readable, path: string, meter: Transform): ReadableStream<Uint8Array> {
  // Without this, a file that cannot be read would leave the request waiting for more.
  source.on("error", (error: Error) => meter.destroy(localFailure(error, path)));
  return Readable.toWeb(source.pipe(meter)) as ReadableStream<Uint8Array>;
}

/** Writes a file of a machine to `target`, through `meter`. */
export async function save(answer: Response, file: MachineFile, to: Target): Promise<void> {
  const { target, meter } = to;
  // Nothing is appended to the name, which may be as long as the file system allows.
  const temporary = join(dirname(target), `.flotilla-${randomBytes(8).toString("hex")}`);
  const mode = Number.parseInt(answer.headers.get("x-file-mode") ?? "644", 8) & 0o777;
  try {
    await pipeline(contentOf(answer, file), meter, createWriteStream(temporary, { mode, flags: "wx" }));
    await rename(temporary, target);
  } catch (error) {
    await rm(temporary, { force: true });
    throw localFailure(error, target);
  }
}

/** Where content goes, and what counts it. */
export interface Target {
  /** An absolute path. */
  readonly target: string;
  readonly meter: Transform;
}

/** Writes a file of a machine into what is at `target` already. */
export async function writeInto(answer: Response, file: MachineFile, { target, meter }: Target): Promise<void> {
  try {
    await pipeline(contentOf(answer, file), meter, createWriteStream(target));
  } catch (error) {
    throw localFailure(error, target);
  }
}

/** Whether a device, a named pipe or a socket is there, also through a link. */
export const isSpecial = (path: string): Promise<boolean> =>
  stat(path).then(
    (facts) => !facts.isFile() && !facts.isDirectory(),
    () => false,
  );

export const isDirectory = (path: string): Promise<boolean> =>
  stat(path).then(
    (facts) => facts.isDirectory(),
    () => false,
  );

/**
 * `flotilla machine cp NAME:PATH FILE` and `flotilla machine cp FILE NAME:PATH`: copies one file out of a
 * machine or into one. `-` is standard input or output.
 *
 * Always:
 * - Bytes are streamed, of any number.
 * - A file on either side keeps its old content until the new content is complete.
 * - A local device or named pipe is written to, and never replaced by a file.
 * - An interrupted download leaves no part of a file.
 * - A directory as destination gets a file with the source's name.
 * - An executable stays executable, and what others may not read stays so.
 *
 * With -r, cp-tree.ts copies a directory.
 */
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { basename, posix, resolve } from "node:path";
import { Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import { type Flotilla, FlotillaError } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { Failure, localFailure, usage } from "../failure.ts";
import { nodeFetch } from "../node-fetch.ts";
import {
  bodyOf,
  type CopyEnd,
  contentOf,
  fileText,
  inMachine,
  isDirectory,
  isSpecial,
  megabytes,
  permissionsOf,
  save,
  writeInto,
} from "./cp-file.ts";
import { copyTree } from "./cp-tree.ts";
import { stoppable } from "../stoppable.ts";
import { findMachine } from "./find.ts";

const STANDARD = "-";
/** A link, to a file where output is redirected to one. */
const STANDARD_OUTPUT = "/dev/stdout";

export interface CopyOptions {
  readonly recursive?: boolean;
}

export async function run(call: Call, operands: readonly string[], options: CopyOptions): Promise<number | void> {
  const [source, destination] = operands.map(parseCopyEnd);
  if (source?.kind === "machine" && source.path === "/")
    throw usage(`${fileText(source)} cannot be copied as a whole`, "name a file or a directory in it");
  if (
    options.recursive === true &&
    source !== undefined &&
    destination !== undefined &&
    source.kind !== destination.kind
  )
    return await copyTree(call, source, destination);
  if (source?.kind === "machine" && destination?.kind === "local")
    return await download(call, source, destination.path);
  if (source?.kind === "local" && destination?.kind === "machine") return await upload(call, source.path, destination);
  throw usage(
    "one side must be a local file, the other one in a machine",
    "such as: flotilla machine cp hello:/etc/hosts .",
  );
}

/** `NAME:PATH` is in a machine, unless the name looks like a path. Pure. */
export function parseCopyEnd(text: string): CopyEnd {
  const [, machine, path] = /^([^/:.][^/:]*):(.*)$/s.exec(text) ?? [];
  if (machine === undefined || path === undefined) return { kind: "local", path: text };
  if (path === "") throw usage(`${text} names no file in the machine`, "such as: hello:/workspace/file");
  const isDirectory = path.endsWith("/");
  const plain = posix.normalize(`/${path}`).replace(/(?<=.)\/$/, "");
  return { kind: "machine", machine, path: isDirectory && plain !== "/" ? `${plain}/` : plain };
}

async function download(call: Call, source: CopyEnd & { readonly kind: "machine" }, to: string): Promise<number> {
  const flotilla = call.flotilla(nodeFetch);
  const { id } = await findMachine(flotilla, source.machine);
  const shown = fileText(source);
  const stopping = new AbortController();
  const { signal } = stopping;
  const answer = await inMachine(source, () => flotilla.readFileAt(id, source.path, { signal })).catch(
    (error: unknown) => {
      throw isOfDirectory(error) ? new Failure(`${shown} is a directory`, copyAll(shown, to)) : error;
    },
  );
  const size = Number(answer.headers.get("content-length"));
  const path = resolve(call.world.directory, to);
  if (to === STANDARD || path === STANDARD_OUTPUT) {
    await pipeline(contentOf(answer, source), call.world.streams.output, { end: false });
    return 0;
  }
  const isInside = await isDirectory(path);
  if (!isInside && to.endsWith("/")) {
    await answer.body?.cancel();
    throw new Failure(`${to} is not a directory`, "make it first, or leave out the / at its end");
  }
  const target = isInside ? resolve(path, basename(source.path)) : path;
  const counted = { target, meter: meter(call, shown, size) };
  if (!(await isSpecial(target))) return await stoppable(call, stopping, () => save(answer, source, counted));
  await writeInto(answer, source, counted);
  return 0;
}

async function upload(call: Call, from: string, to: CopyEnd & { readonly kind: "machine" }): Promise<void> {
  const flotilla = call.flotilla(nodeFetch);
  const { id } = await findMachine(flotilla, to.machine);
  const path = resolve(call.world.directory, from);
  const facts =
    from === STANDARD ? null : await stat(path).catch((error: unknown) => Promise.reject(localFailure(error, path)));
  if (facts?.isDirectory()) throw new Failure(`${from} is a directory`, copyAll(from, fileText(to)));
  const target = await inMachine(to, () => targetOf(flotilla, id, to.path, basename(path)));
  const source = facts === null ? call.world.streams.input : createReadStream(path);
  const counted = meter(call, `${to.machine}:${target}`, facts?.size ?? null);
  const content = bodyOf(source, path, counted);
  await inMachine({ machine: to.machine, path: target }, () => flotilla.putFileAt(id, target, content));
  const permissions = facts === null ? null : permissionsOf(facts.mode);
  if (permissions !== null) await setPermissions(flotilla, id, { path: target, permissions });
}

/** A directory as destination gets a file with the source's name. */
async function targetOf(flotilla: Flotilla, id: string, path: string, name: string): Promise<string> {
  if (path.endsWith("/")) return path + name;
  try {
    const answer = await flotilla.readFileAt(id, path, { headers: { range: "bytes=0-0" } });
    await answer.body?.cancel();
  } catch (error) {
    if (!(error instanceof FlotillaError)) throw error;
    if (isOfDirectory(error)) return `${path}/${name}`;
    if (error.code !== "not_found" && error.code !== "range_not_satisfiable") throw error;
  }
  return path;
}

/** Whether the server refused to read a directory as a file. */
const isOfDirectory = (error: unknown): boolean =>
  error instanceof FlotillaError && error.code === "conflict" && error.details.resource?.kind === "directory";

const copyAll = (from: string, to: string): string => `such as: flotilla machine cp -r ${from} ${to}`;

async function setPermissions(
  flotilla: Flotilla,
  id: string,
  { path, permissions }: { readonly path: string; readonly permissions: string },
): Promise<void> {
  const { exitCode, stderr } = await flotilla.exec(id, { command: ["chmod", permissions, "--", path] });
  if (exitCode !== 0)
    throw new Failure(`${path} was copied, but its permissions could not be set to ${permissions}: ${stderr.trim()}`);
}

/** Passes bytes on and shows the number on a terminal. */
function meter(call: Call, what: string, size: number | null): Transform {
  const progress = call.output.progress(`copying ${what}`);
  const startedAt = call.world.clock.monotonic();
  let bytes = 0;
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      bytes += chunk.byteLength;
      const seconds = Math.max(0.001, (call.world.clock.monotonic() - startedAt) / 1000);
      const part = size === null || size === 0 ? "" : `, ${Math.floor((100 * bytes) / size)} % of ${megabytes(size)}`;
      progress.say(`copying ${what}: ${megabytes(bytes)}${part}, ${megabytes(bytes / seconds)}/s`);
      done(null, chunk);
    },
    destroy(error, done) {
      progress[Symbol.dispose]();
      done(error);
    },
  });
}

/**
 * Reads a file of a machine, whole or in part, and lists directories.
 *
 * Always: a file is streamed, and one that does not arrive completely breaks the answer. A small file is read
 * before it is answered, so that its hash is in the answer's head.
 */
import { createHash } from "node:crypto";
import { Readable } from "node:stream";
import { Refusal } from "@flotilla/contract/errors";
import { type FilePart, locateInFile, WHOLE_FILE } from "@flotilla/contract/link/file-parts";
import type { FileFacts } from "@flotilla/contract/link/files";
import type { Budget } from "../../fairness/budget.ts";
import type { MachineServices } from "../services.ts";
import { Listing } from "./listing.ts";
import { beginOnNode, type FileTarget, onNode } from "./work.ts";

/** Files up to this size are held for their hash. */
const HASHED_BYTES_MAX = 1024 * 1024;

export interface FileRead {
  readonly status: 200 | 206;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Readable;
}

/** `part` undefined: all of it, and so if `etag` is given and not the file's. Throws a Refusal. */
export async function readFile(
  services: MachineServices,
  target: FileTarget,
  part: FilePart | undefined,
  etag?: string,
): Promise<FileRead> {
  const { value, finish, end } = await beginOnNode(services, target, (files, call) =>
    files.read(call, part ?? WHOLE_FILE),
  );
  const { facts, content } = value;
  content.once("close", end);
  if (part !== undefined && etag !== undefined && etag !== etagOf(facts)) {
    content.destroy();
    return await readFile(services, target, undefined);
  }
  const located = part === undefined ? { first: 0, count: facts.size } : locateInFile(part, facts.size);
  if (located === undefined) {
    content.destroy();
    const text = `the range asked for lies outside ${target.path}, which has ${facts.size} bytes`;
    throw new Refusal("range_not_satisfiable", text, { headers: { "content-range": `bytes */${facts.size}` } });
  }
  const { first, count } = located;
  const headers = headersOf(facts, count);
  if (part !== undefined) {
    headers["content-range"] = `bytes ${first}-${first + count - 1}/${facts.size}`;
    return { status: 206, headers, body: content };
  }
  if (count > HASHED_BYTES_MAX) return { status: 200, headers, body: content };
  const bytes = Buffer.concat(await finish(() => content.toArray()));
  headers["x-content-sha256"] = createHash("sha256").update(bytes).digest("hex");
  return { status: 200, headers, body: Readable.from([bytes]) };
}

const etagOf = ({ size, modifiedAt }: FileFacts): string => `"${size.toString(16)}-${modifiedAt.toString(16)}"`;

function headersOf(facts: FileFacts, count: number): Record<string, string> {
  const { modifiedAt, mode } = facts;
  return {
    "content-length": String(count),
    "accept-ranges": "bytes",
    "last-modified": new Date(modifiedAt).toUTCString(),
    etag: etagOf(facts),
    "x-file-mode": mode,
  };
}

/** The entries of a directory, by name, as JSON. Throws a Refusal. */
export async function listDirectory(services: MachineServices, target: FileTarget, budget: Budget): Promise<string> {
  const { tenantId, path } = target;
  using listing = new Listing({ budget, tenantId, path });
  await onNode(services, target, (files, call) => files.list(call, (entry) => listing.add(entry)));
  return listing.toJson();
}

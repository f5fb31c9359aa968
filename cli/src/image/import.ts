/**
 * `flotilla image import FILE REFERENCE`: gives an archive a name of the form `local/…` on a node.
 *
 * The file is streamed, never held in memory. The request has no timeout, because a node may be silent while
 * it unpacks.
 */
import { open } from "node:fs/promises";
import { Readable } from "node:stream";
import { ownMessageOf } from "@flotilla/base/errors";
import type { Call } from "../call.ts";
import { fileErrorText, usage } from "../failure.ts";
import { nodeFetch } from "../node-fetch.ts";
import { renderBytes } from "../table.ts";

export interface ImportOptions {
  readonly node?: string;
}

export async function run(call: Call, [file = "", reference = ""]: readonly string[], options: ImportOptions) {
  await importArchive(call, file, { reference, nodeId: options.node });
}

/** Sends the archive and prints the image's name. `signal` ends it. */
export async function importArchive(
  call: Call,
  file: string,
  query: { readonly reference: string; readonly nodeId?: string | undefined },
  signal?: AbortSignal,
): Promise<void> {
  await using archive = await open(file).catch((error: unknown) => {
    throw usage(`${file}: ${fileErrorText(error) ?? ownMessageOf(error)}`);
  });
  const facts = await archive.stat();
  if (facts.isDirectory()) throw usage(`${file} is a directory`, "name an archive, such as one that `tar -cf` makes");
  using _progress = call.output.progress(`importing ${query.reference} (${renderBytes(facts.size)})`);
  const body = Readable.toWeb(archive.createReadStream()) as ReadableStream<Uint8Array>;
  const images = await call.flotilla(nodeFetch).importImage(body, { query, signal });
  if (call.output.isJson) return call.output.json(images);
  call.output.line(query.reference);
}

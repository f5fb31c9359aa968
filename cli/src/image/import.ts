/**
 * `flotilla image import FILE REFERENCE`: gives an archive a name of the form `local/…` on a node.
 *
 * The file is streamed, never held in memory. The request has no timeout, because a node may be silent while it
 * unpacks.
 */
import { createReadStream, statSync } from "node:fs";
import { Readable } from "node:stream";
import type { Call } from "../call.ts";
import { usage } from "../failure.ts";
import { nodeFetch } from "@flotilla/sdk/node-fetch";
import { renderBytes } from "../table.ts";

export interface ImportOptions {
  readonly node?: string;
}

export async function run(call: Call, [file = "", reference = ""]: readonly string[], options: ImportOptions) {
  await importArchive(call, file, { reference, nodeId: options.node });
}

/** Sends the archive and prints the image's name. */
export async function importArchive(
  call: Call,
  file: string,
  query: { readonly reference: string; readonly nodeId?: string | undefined },
): Promise<void> {
  const size = statSync(file, { throwIfNoEntry: false })?.size;
  if (size === undefined) throw usage(`${file}: no such file`);
  using _progress = call.output.progress(`importing ${query.reference} (${renderBytes(size)})`);
  const body = Readable.toWeb(createReadStream(file)) as ReadableStream<Uint8Array>;
  const images = await call.flotilla(nodeFetch).importImage(body, { query });
  if (call.output.isJson) return call.output.json(images);
  call.output.line(query.reference);
}

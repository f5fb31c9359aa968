/**
 * Makes a layer of a package from records of a disk: a file with one frame of zstd.
 *
 * Always: the same records give the same file with the same zstd library.
 */
import { createHash } from "node:crypto";
import { createWriteStream } from "node:fs";
import type { Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { constants, createZstdCompress } from "node:zlib";
import { type DiskRecord, recordHead } from "../images/disk-records.ts";
import type { PackageLayer } from "../images/package-manifest.ts";

export interface MadeLayer extends PackageLayer {
  /** Its records, with their heads. */
  readonly plainBytes: number;
  readonly dataBytes: number;
}

/** The default of zstd: higher levels are slower than the disks and networks that they would relieve. */
const LEVEL = 3;
const PARAMETERS = { [constants.ZSTD_c_compressionLevel]: LEVEL, [constants.ZSTD_c_checksumFlag]: 0 };
const CHUNK_BYTES = 256 * 1024;

/** Writes the layer to a new file. The data of a record is not used after the next one was requested. */
export async function makeLayer(
  records: AsyncIterable<DiskRecord>,
  path: string,
  signal: AbortSignal,
): Promise<MadeLayer> {
  const [plain, stored] = [createHash("sha256"), createHash("sha256")];
  let [plainBytes, dataBytes, size] = [0, 0, 0];
  const compress = createZstdCompress({ params: PARAMETERS, chunkSize: CHUNK_BYTES });
  const storedParts = async function* (parts: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void> {
    for await (const part of parts) {
      stored.update(part);
      size += part.byteLength;
      yield part;
    }
  };
  const written = pipeline(compress, storedParts, createWriteStream(path, { mode: 0o600, flags: "w" }), { signal });
  const write = async (): Promise<void> => {
    for await (const record of records) {
      for (const part of [recordHead(record), record.data]) {
        plain.update(part);
        plainBytes += part.byteLength;
        await taken(compress, part);
      }
      dataBytes += record.data.byteLength;
    }
    compress.end();
  };
  const writing = write().catch((error: Error) => void compress.destroy(error));
  try {
    await written;
  } finally {
    // The one that fails ends the other.
    await writing;
  }
  const [digest, diffId] = [stored, plain].map((hash) => `sha256:${hash.digest("hex")}`) as [string, string];
  return { digest, size, diffId, plainBytes, dataBytes };
}

/**
 * Resolves when the stream has used the part. A stream that is destroyed while it waits for its reader says
 * nothing of the part.
 */
function taken(stream: Writable, part: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    const leave = (): void => reject(new Error("the layer is not made any more"));
    stream.once("close", leave);
    stream.write(part, (error) => {
      stream.off("close", leave);
      if (error) reject(error);
      else resolve();
    });
  });
}

/**
 * Writes the disk of a package from its layers, which are hostile.
 *
 * Always: a layer is written to the file while it is unpacked, and the file is used only when each layer had
 * the digest of the config. What is out of proportion is refused as for every image (UnpackBudget).
 */
import { open, stat } from "node:fs/promises";
import { decompress, UnpackBudget } from "./blobs.ts";
import { CorruptData } from "./corrupt-data.ts";
import { DamagedRecords, RecordReader } from "./disk-records.ts";
import type { PackagedDisk } from "./package-manifest.ts";

export interface WrittenDisk {
  readonly disk: PackagedDisk;
  /** The digest of each layer's records. */
  readonly diffIds: readonly string[];
  readonly layerPaths: readonly string[];
  /** A file that does not exist. */
  readonly path: string;
  /** What all layers may have unpacked. */
  readonly bytesMax: number;
  readonly signal: AbortSignal;
  readonly report: (message: string) => void;
}

/** Where the super block of ext4 has its magic number. */
const MAGIC_AT = 1024 + 56;
const MAGIC = 0xef53;

/** Throws an Error with a user-facing message. The caller removes the file then. */
export async function writePackagedDisk(request: WrittenDisk): Promise<void> {
  const { disk, diffIds, layerPaths, path, signal, report } = request;
  if (diffIds.length !== layerPaths.length)
    throw new Error(`it has ${layerPaths.length} layers, but its config lists ${diffIds.length}`);
  await using file = await open(path, "wx+", 0o600);
  await file.truncate(disk.diskBytes);
  const records = new RecordReader(disk.diskBytes);
  const budget = new UnpackBudget();
  for (const source of layerPaths) budget.begin(source, (await stat(source)).size);
  const inspect = async (chunk: Buffer): Promise<void> => {
    for (const { offset, data } of records.read(chunk))
      for (let at = 0; at < data.byteLength; )
        at += (await file.write(data, at, data.byteLength - at, offset + at)).bytesWritten;
  };
  let bytesLeft = request.bytesMax;
  for (const [index, source] of layerPaths.entries()) {
    const ordinal = `layer ${index + 1} of ${layerPaths.length}`;
    report(`writing ${ordinal}`);
    const unpack = async (): Promise<string> => {
      const { digest, bytes } = await decompress({
        source,
        target: null,
        bytesMax: bytesLeft,
        signal,
        inspect,
        budget,
      });
      records.endLayer();
      bytesLeft -= bytes;
      return digest;
    };
    const digest = await unpack().catch((error: Error) => {
      const isCorrupt = error instanceof CorruptData || error instanceof DamagedRecords;
      throw isCorrupt ? new Error(`${ordinal} is corrupt: ${error.message}`) : error;
    });
    if (digest !== diffIds[index])
      throw new Error(`${ordinal} is corrupt: its content does not match the digest in the config`);
  }
  const magic = Buffer.alloc(2);
  await file.read(magic, 0, magic.byteLength, MAGIC_AT);
  if (magic.readUInt16LE(0) !== MAGIC) throw new Error("its disk has no ext4 file system, which a machine boots from");
}

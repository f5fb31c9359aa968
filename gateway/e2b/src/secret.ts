/**
 * The gateway's secret: a file of the data directory that only its user reads, made at the first start.
 *
 * Always: the file appears whole. A gateway with another secret does not know the tokens of this one.
 */
import { randomBytes } from "node:crypto";
import { link, mkdir, readFile, unlink, writeFile } from "node:fs/promises";
import { join } from "node:path";

const NAME = "e2b.secret";
const BYTES = 32;

/** Throws when it can neither be read nor made. */
export async function secretOf(directory: string): Promise<Buffer> {
  const path = join(directory, NAME);
  const known = await read(path);
  if (known !== null) return known;
  await mkdir(directory, { recursive: true });
  const own = `${path}.${process.pid}`;
  await writeFile(own, randomBytes(BYTES).toString("hex"), { mode: 0o600 });
  // Two gateways may start at the same time: the first one's stays.
  await link(own, path).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "EEXIST") throw error;
  });
  await unlink(own);
  const made = await read(path);
  if (made === null) throw new Error(`${path} holds no secret`);
  return made;
}

async function read(path: string): Promise<Buffer | null> {
  try {
    const text = (await readFile(path, "utf8")).trim();
    if (!/^[0-9a-f]{64}$/.test(text)) throw new Error(`${path} holds no secret; remove it, and clients connect again`);
    return Buffer.from(text, "hex");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
}

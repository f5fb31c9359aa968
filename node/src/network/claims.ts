/**
 * Assigns blocks of addresses to the node directories of this host.
 *
 * Owns `/run/flotilla-networks/`, with one file per block that contains the directory. It is lost when the
 * host restarts, like the rules that belong to it.
 *
 * Always:
 * - a block belongs to one directory, because its file is created exclusively;
 * - a directory gets the same block again as long as its claim exists;
 * - a claim whose directory no longer exists is reported for removal, so the next Flotilla on the host cleans
 *   up after an agent that was killed and never restarted.
 */
import { createHash, randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { link, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { BLOCKS, type Block, blockOf } from "./addresses.ts";

export const CLAIMS_DIRECTORY = "/run/flotilla-networks";
const NAME = /^[0-9a-f]{4}$/;

/** The directory's block: its existing claim, or the first free block from the index that its hash gives. */
export async function claimBlock(claims: string, directory: string): Promise<Block> {
  await mkdir(claims, { recursive: true, mode: 0o755 });
  const held = await readClaims(claims);
  const own = held.find((claim) => claim.directory === directory);
  if (own !== undefined) return own.block;
  const taken = new Set(held.map(({ block }) => block.id));
  const start = createHash("sha256").update(directory).digest().readUInt32LE(0);
  for (let count = 0; count < BLOCKS; count += 1) {
    const block = blockOf((start + count) % BLOCKS);
    if (!taken.has(block.id) && (await tryToClaim(claims, block, directory))) return block;
  }
  throw new Error(
    `every block of addresses is claimed in ${claims}; remove the files of directories that are no longer used`,
  );
}

/** Blocks whose directory no longer exists. */
export async function abandonedBlocks(claims: string): Promise<readonly Block[]> {
  const held = await readClaims(claims);
  return held.filter(({ directory }) => directory !== "" && !existsSync(directory)).map(({ block }) => block);
}

export async function releaseBlock(claims: string, block: Block): Promise<void> {
  await rm(join(claims, block.id), { force: true });
}

/** Atomic: the file gets its name only with its content. */
async function tryToClaim(claims: string, block: Block, directory: string): Promise<boolean> {
  const temporary = join(claims, `.new-${randomBytes(6).toString("hex")}`);
  await writeFile(temporary, directory, { mode: 0o600 });
  try {
    await link(temporary, join(claims, block.id));
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw error;
  } finally {
    await rm(temporary, { force: true });
  }
}

async function readClaims(claims: string): Promise<readonly { readonly block: Block; readonly directory: string }[]> {
  const names = (await readdir(claims)).filter((name) => NAME.test(name) && Number.parseInt(name, 16) < BLOCKS);
  return Promise.all(
    names.map(async (name) => ({
      block: blockOf(Number.parseInt(name, 16)),
      directory: await readFile(join(claims, name), "utf8").catch(() => ""),
    })),
  );
}

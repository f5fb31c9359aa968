/**
 * The first admin key: made at the first start, kept in `<data dir>/admin.key`, readable by its owner only.
 *
 * Always:
 * - The file is written before the row, so a crash in between leaves a key that the next start registers, and
 *   never an unknown admin key.
 * - Without the file a new key is made, even if the database has others: write access to the data directory
 *   is ownership of the service. For the same reason a revoked key in the file is replaced at the next start,
 *   so that revoking the last admin key locks no operator out; the revoked one stays revoked.
 */
import { readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Context } from "../context.ts";
import { adoptAdminKey } from "./key-store.ts";
import { hashKey, hasKeyForm, makeKey } from "./keys.ts";

export interface AdminKey {
  readonly key: string;
  readonly path: string;
  /** Made by this start, so it has not been shown to anyone. */
  readonly isNew: boolean;
}

export async function ensureAdminKey(context: Context, dataDirectory: string): Promise<AdminKey> {
  const path = join(dataDirectory, "admin.key");
  const existing = await readKeyFile(path);
  if (existing !== undefined) {
    const outcome = await adopt(context, existing);
    if (outcome !== "revoked") return { key: existing, path, isNew: outcome === "new" };
    context.log.warn({ path }, "the admin key in this file was revoked; replacing it with a new one");
  }
  const key = makeKey(context.randomBytes);
  const temporary = `${path}.${context.randomBytes(4).toString("hex")}`;
  await writeFile(temporary, `${key}\n`, { mode: 0o600, flush: true });
  await rename(temporary, path);
  await adopt(context, key);
  return { key, path, isNew: true };
}

const adopt = (context: Context, key: string) =>
  adoptAdminKey(context.db, { id: context.ids.make("key"), hash: hashKey(key) });

async function readKeyFile(path: string): Promise<string | undefined> {
  try {
    const text = (await readFile(path, "utf8")).trim();
    if (hasKeyForm(text)) return text;
    throw new Error(`${path} holds no API key; remove it to have a new admin key made`);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

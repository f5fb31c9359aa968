/**
 * Work on each machine of a list, or each of several pieces of work, one after the other; one that fails does
 * not keep the others from their turn.
 */
import { ownMessageOf } from "@flotilla/base/errors";
import type { MachineName } from "../machines/record.ts";

/** `count`: for how many `work` gave true. */
export async function each(
  names: readonly MachineName[],
  work: (name: MachineName) => Promise<boolean>,
): Promise<{ readonly count: number; readonly errors: readonly string[] }> {
  const errors: string[] = [];
  let count = 0;
  for (const name of names) {
    try {
      if (await work(name)) count += 1;
    } catch (error) {
      errors.push(`${name.id}: ${ownMessageOf(error)}`);
    }
  }
  return { count, errors };
}

/** `counts`: what each piece of work resolved with, by its name. */
export async function countEach<Piece>(
  pieces: Readonly<Record<string, Piece>>,
  work: (piece: Piece) => Promise<number>,
): Promise<{ readonly counts: Readonly<Record<string, number>>; readonly errors: readonly string[] }> {
  const errors: string[] = [];
  const counts: Record<string, number> = {};
  for (const [name, piece] of Object.entries(pieces)) {
    try {
      counts[name] = await work(piece);
    } catch (error) {
      errors.push(`${name}: ${ownMessageOf(error)}`);
    }
  }
  return { counts, errors };
}

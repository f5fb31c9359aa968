/**
 * Several pieces of work, one after the other; one that fails does not keep the others from their turn.
 */
import { ownMessageOf } from "@flotilla/base/errors";

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

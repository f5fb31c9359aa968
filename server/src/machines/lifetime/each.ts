/**
 * Work on each machine of a list, one after the other; one that fails does not keep the others from their
 * turn.
 */
import { ownMessageOf } from "@flotilla/base/errors";
import type { MachineName } from "../record.ts";

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

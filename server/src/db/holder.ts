/**
 * The holder for whom statements run: a tenant, an address whose credential is unknown, or the server itself.
 *
 * Always:
 * - Work that is begun in `forHolder` counts for its holder, with all that it awaits, until its result is
 *   known.
 * - Work that several callers wait for begins in `forAll` and counts for none of them: otherwise all would
 *   wait in the queue of the one that happened to begin it.
 */
import { AsyncLocalStorage } from "node:async_hooks";

interface Hold {
  readonly name: string;
  isOver: boolean;
}

const current = new AsyncLocalStorage<Hold | null>();

/** Does the work for a holder. A timer or loop that it leaves behind counts for the server. */
export function forHolder<T>(name: string, work: () => T): T {
  const hold = { name, isOver: false };
  const end = (): void => void (hold.isOver = true);
  return current.run(hold, () => {
    let result: T | undefined;
    try {
      result = work();
      return result;
    } finally {
      if (result instanceof Promise) void result.then(end, end);
      else end();
    }
  });
}

/** Does the work for all who wait for it. */
export const forAll = <T>(work: () => T): T => current.run(null, work);

/** Name of the holder for whom the caller works; null: the server. */
export function currentHolder(): string | null {
  const hold = current.getStore();
  return hold === undefined || hold === null || hold.isOver ? null : hold.name;
}

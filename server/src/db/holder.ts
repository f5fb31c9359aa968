/**
 * The holder for whom statements run: a tenant, an address whose credential is unknown, or the server itself.
 *
 * Always:
 * - Work that is begun in `forHolder` counts for its holder, with all that it awaits, until its result is
 *   known.
 * - Work that several callers wait for begins in `forAll` and counts for none of them: otherwise all would
 *   wait in the queue of the one that happened to begin it.
 * - The reserve of the database's disk is for the server's work and for what holders read and delete. Work of
 *   a holder that makes something does not use it.
 */
import { AsyncLocalStorage } from "node:async_hooks";

interface Hold {
  readonly name: string;
  readonly makes: boolean;
  isOver: boolean;
}

const current = new AsyncLocalStorage<Hold | null>();

/**
 * Does the work for a holder. A timer or loop that it leaves behind counts for the server. `makes`: it may
 * store something new.
 */
export function forHolder<T>(name: string, work: () => T, { makes = false }: { readonly makes?: boolean } = {}): T {
  const hold = { name, makes, isOver: false };
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
export const currentHolder = (): string | null => currentHold()?.name ?? null;

/** Whether what the caller does may use the reserve of the database's disk. */
export const mayUseReserve = (): boolean => currentHold()?.makes !== true;

function currentHold(): Hold | null {
  const hold = current.getStore() ?? null;
  return hold?.isOver === true ? null : hold;
}

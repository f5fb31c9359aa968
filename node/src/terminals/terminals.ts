/**
 * The kept terminals of this node's machines, by the keys that their clients drew.
 *
 * Always: a machine has at most TERMINALS_MAX. One more takes the place of the one that has waited longest
 * for its client, and is refused when none waits.
 */
import type { Terminal } from "./terminal.ts";

/** Each holds less than 0.25 MiB. */
export const TERMINALS_MAX = 32;

export class Terminals {
  readonly #byMachine = new Map<string, Map<string, Terminal>>();
  /** Searches in the guest, by machine and key. */
  readonly #resuming = new Map<string, Promise<Terminal>>();

  find(machineId: string, key: string): Terminal | undefined {
    return this.#byMachine.get(machineId)?.get(key);
  }

  /** Makes room for one more; false when there is none. */
  makeRoom(machineId: string): boolean {
    const of = [...(this.#byMachine.get(machineId)?.values() ?? [])];
    if (of.length < TERMINALS_MAX) return true;
    const waiting = of.filter(({ detachedAt }) => detachedAt !== null);
    const [oldest] = waiting.toSorted((a, b) => (a.detachedAt ?? 0) - (b.detachedAt ?? 0));
    oldest?.dismiss();
    return oldest !== undefined;
  }

  /** `make` gets what its terminal calls when it is gone. */
  add(machineId: string, key: string, make: (onGone: () => void) => Terminal): Terminal {
    const of = this.#byMachine.get(machineId) ?? new Map<string, Terminal>();
    this.#byMachine.set(machineId, of);
    const terminal = make(() => {
      if (of.get(key) === terminal) of.delete(key);
      if (of.size === 0 && this.#byMachine.get(machineId) === of) this.#byMachine.delete(machineId);
    });
    of.set(key, terminal);
    return terminal;
  }

  /** The terminal, which is looked for once even if two clients ask. */
  async resume(machineId: string, key: string, look: () => Promise<Terminal>): Promise<Terminal> {
    const name = `${machineId} ${key}`;
    const known = this.find(machineId, key) ?? this.#resuming.get(name);
    if (known !== undefined) return await known;
    const looking = look();
    this.#resuming.set(name, looking);
    try {
      return await looking;
    } finally {
      this.#resuming.delete(name);
    }
  }
}

/**
 * What the interfaces of this host have received, as the kernel counts it.
 *
 * Owns nothing. The table of all interfaces is read once for all that ask in the same turn of the event loop.
 */
import { readFileSync } from "node:fs";

/** More than the first column takes. */
const COLUMN_CHARACTERS = 40;

/** The table; null: not read in this turn. */
let table: string | null = null;

/** Bytes; undefined: there is no such interface. */
export function receivedBy(name: string): number | undefined {
  if (table === null) {
    // tidy-allow blocking: the kernel answers from memory, and a namespace is closed after the read
    table = readFileSync("/proc/net/dev", "utf8");
    process.nextTick(() => (table = null));
  }
  return receivedIn(table, name);
}

/** Pure: the first number of the interface's line. */
export function receivedIn(devices: string, name: string): number | undefined {
  for (let at = devices.indexOf(`${name}:`); at >= 0; at = devices.indexOf(`${name}:`, at + 1)) {
    if (at > 0 && devices[at - 1] !== " " && devices[at - 1] !== "\n") continue;
    const start = at + name.length + 1;
    return Number(/^ *(\d+) /.exec(devices.slice(start, start + COLUMN_CHARACTERS))?.[1]);
  }
  return undefined;
}

/**
 * What the interfaces of this host have received, as the kernel counts it.
 *
 * Owns the namespaces that counters keep open. The table of all interfaces is read once for all that ask in
 * the same turn of the event loop.
 */
import { closeSync, openSync, readFileSync } from "node:fs";
import type { SentCounter } from "./vm-network.ts";

/** More than the first column takes. */
const COLUMN_CHARACTERS = 40;

/** The table; null: not read in this turn. */
let table: string | null = null;

/**
 * What the host's end of an uplink has received: what the policy lets out, with the headers of frames. Until
 * it is closed it keeps the namespace, and with it the interface, also when its VMM has ended.
 */
export class UplinkCounter implements SentCounter {
  readonly #hostEnd: string;
  /** null: closed, or its VMM had ended before: another one may have an interface of this name. */
  #namespace: number | null;
  #bytes = 0;

  constructor(hostEnd: string, pid: number) {
    this.#hostEnd = hostEnd;
    this.#namespace = openNamespaceOf(pid);
  }

  bytes(): number {
    if (this.#namespace !== null) this.#bytes = Math.max(this.#bytes, receivedBy(this.#hostEnd) ?? 0);
    return this.#bytes;
  }

  close(): void {
    this.bytes();
    if (this.#namespace !== null) closeSync(this.#namespace);
    this.#namespace = null;
  }
}

function openNamespaceOf(pid: number): number | null {
  try {
    return openSync(`/proc/${pid}/ns/net`, "r");
  } catch {
    return null;
  }
}

/** Bytes; undefined: there is no such interface. */
function receivedBy(name: string): number | undefined {
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

/**
 * Tells a machine's owner where it was not allowed to go: `egress denied to 203.0.113.7:443 (tcp)`.
 *
 * The rule that refuses a packet notes its destination in a set of the machine's namespace, for a minute. A refusal
 * is also counted by the kernel, in a file that can be read without entering the namespace; so a look at a machine that
 * was refused nothing costs one read of a file in memory.
 *
 * Always: a destination is told at most once per REPEAT_MS, and at most EVENTS_MAX of a machine per WINDOW_MS; how many
 * more there were is told at the window's end. What was refused while no agent ran is told if the set still has it.
 */
import { readFile } from "node:fs/promises";
import type { Clock } from "@flotilla/base/clock";
import { inNamespaceOf, run } from "./programs.ts";

const REPEAT_MS = 10 * 60_000;
const WINDOW_MS = 60_000;
const EVENTS_MAX = 10;
const TOLD_MAX = 1024;

/** Which refusals of one machine are worth an event. Pure but for what it remembers. */
export class DenialLimit {
  readonly #tell: (destination: string) => void;
  readonly #toldAt = new Map<string, number>();
  #windowAt = Number.NEGATIVE_INFINITY;
  #inWindow = 0;
  #left = new Set<string>();

  /** `tell` gets what follows `egress denied`. */
  constructor(tell: (words: string) => void) {
    this.#tell = tell;
  }

  /** `now`: monotonic milliseconds. */
  denied(destination: string, now: number): void {
    this.tick(now);
    const toldAt = this.#toldAt.get(destination);
    if (toldAt !== undefined && now - toldAt < REPEAT_MS) return;
    if (this.#inWindow >= EVENTS_MAX) {
      if (this.#left.size < TOLD_MAX) this.#left.add(destination);
      return;
    }
    if (this.#inWindow === 0) this.#windowAt = now;
    this.#inWindow += 1;
    this.#toldAt.delete(destination);
    this.#toldAt.set(destination, now);
    const [oldest] = this.#toldAt.keys();
    if (this.#toldAt.size > TOLD_MAX && oldest !== undefined) this.#toldAt.delete(oldest);
    this.#tell(`to ${destination}`);
  }

  /** Closes the window when its time has come. */
  tick(now: number): void {
    if (now - this.#windowAt < WINDOW_MS) return;
    if (this.#left.size > 0) this.#tell(`to ${this.#left.size} more destinations`);
    this.#left = new Set();
    this.#inWindow = 0;
  }
}

/** Looks at one machine's refusals. */
export class DenialWatch {
  readonly #pid: number;
  readonly #limit: DenialLimit;
  readonly #clock: Clock;
  #count = 0;

  constructor(pid: number, limit: DenialLimit, clock: Clock) {
    this.#pid = pid;
    this.#limit = limit;
    this.#clock = clock;
  }

  /** Rejects when the machine's namespace is gone. */
  async look(): Promise<void> {
    const now = this.#clock.monotonic();
    this.#limit.tick(now);
    const count = refusalsIn(await readFile(`/proc/${this.#pid}/net/snmp`, "utf8"));
    if (count === this.#count) return;
    const listing = await run(inNamespaceOf(this.#pid, ["nft", "-j", "list", "set", "inet", "machine", "denied"]));
    this.#count = count;
    for (const destination of destinationsIn(listing)) this.#limit.denied(destination, now);
  }
}

/** `Icmp: <names>` and `Icmp: <numbers>`: how many packets were answered with "unreachable". */
export function refusalsIn(snmp: string): number {
  const [names = [], numbers = []] = [...snmp.matchAll(/^Icmp: (.*)$/gm)].map((match) => (match[1] ?? "").split(" "));
  return Number(numbers[names.indexOf("OutDestUnreachs")] ?? 0);
}

/** nft's JSON of the set. Throws when it is something else. */
export function destinationsIn(listing: string): readonly string[] {
  const { nftables } = JSON.parse(listing) as {
    readonly nftables: readonly { readonly set?: { readonly elem?: unknown } }[];
  };
  const elements = nftables.flatMap(({ set }) => (Array.isArray(set?.elem) ? (set.elem as unknown[]) : []));
  return elements.map((element) => destinationOf(element)).filter((destination) => destination !== null);
}

function destinationOf(element: unknown): string | null {
  const { elem } = element as { readonly elem?: { readonly val?: { readonly concat?: readonly unknown[] } } };
  const [address, protocol, port] = elem?.val?.concat ?? [];
  if (typeof address !== "string") return null;
  const hasPort = protocol === "tcp" || protocol === "udp";
  return hasPort ? `${address}:${String(port)} (${protocol})` : `${address} (${String(protocol)})`;
}

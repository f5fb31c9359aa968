/**
 * Reports connections that a machine's policy denied to its owner: `egress denied to 203.0.113.7:443 (tcp)`.
 *
 * The rule that rejects a packet records its destination for a minute in a set of the machine's namespace.
 * The kernel also counts rejections in a file that can be read without entering the namespace, so checking a
 * machine without rejections costs one read of a file in memory.
 *
 * Always:
 * - a destination is reported at most once per REPEAT_MS;
 * - a machine reports at most EVENTS_MAX destinations per WINDOW_MS, and at the window's end the number of
 *   further ones;
 * - rejections while no agent runs are reported later if the set still has them.
 */
import { readFile } from "node:fs/promises";
import type { Clock } from "@flotilla/base/clock";
import { inNamespaceOf, run } from "./programs.ts";

const REPEAT_MS = 10 * 60_000;
const WINDOW_MS = 60_000;
const EVENTS_MAX = 10;
const REPORTED_MAX = 1024;

/** Decides which rejections of one machine become events. Stateful, without other effects. */
export class DenialLimit {
  readonly #report: (detail: string) => void;
  readonly #reportedAt = new Map<string, number>();
  #windowAt = Number.NEGATIVE_INFINITY;
  #inWindow = 0;
  #left = new Set<string>();

  /** `report` receives the text after `egress denied`. */
  constructor(report: (detail: string) => void) {
    this.#report = report;
  }

  /** `now` is in monotonic milliseconds. */
  denied(destination: string, now: number): void {
    this.tick(now);
    const reportedAt = this.#reportedAt.get(destination);
    if (reportedAt !== undefined && now - reportedAt < REPEAT_MS) return;
    if (this.#inWindow >= EVENTS_MAX) {
      if (this.#left.size < REPORTED_MAX) this.#left.add(destination);
      return;
    }
    if (this.#inWindow === 0) this.#windowAt = now;
    this.#inWindow += 1;
    this.#reportedAt.delete(destination);
    this.#reportedAt.set(destination, now);
    const [oldest] = this.#reportedAt.keys();
    if (this.#reportedAt.size > REPORTED_MAX && oldest !== undefined) this.#reportedAt.delete(oldest);
    this.#report(`to ${destination}`);
  }

  /** Ends the window when WINDOW_MS have passed. */
  tick(now: number): void {
    if (now - this.#windowAt < WINDOW_MS) return;
    if (this.#left.size > 0) this.#report(`to ${this.#left.size} more destinations`);
    this.#left = new Set();
    this.#inWindow = 0;
  }
}

/** Checks one machine for rejections. */
export class DenialWatch {
  #pid: number;
  readonly #limit: DenialLimit;
  readonly #clock: Clock;
  #count = 0;

  constructor(pid: number, limit: DenialLimit, clock: Clock) {
    this.#pid = pid;
    this.#limit = limit;
    this.#clock = clock;
  }

  /** Another process of the same namespace. */
  follow(pid: number): void {
    this.#pid = pid;
  }

  /** Rejects when the machine's namespace is gone. */
  async check(): Promise<void> {
    const now = this.#clock.monotonic();
    this.#limit.tick(now);
    const count = refusalsIn(await readFile(`/proc/${this.#pid}/net/snmp`, "utf8"));
    if (count === this.#count) return;
    const listing = await run(inNamespaceOf(this.#pid, ["nft", "-j", "list", "set", "inet", "machine", "denied"]));
    this.#count = count;
    for (const destination of destinationsIn(listing)) this.#limit.denied(destination, now);
  }
}

/**
 * How many packets were answered with "unreachable", from the lines `Icmp: <names>` and `Icmp: <numbers>`.
 */
export function refusalsIn(snmp: string): number {
  const [names = [], numbers = []] = [...snmp.matchAll(/^Icmp: (.*)$/gm)].map((match) => (match[1] ?? "").split(" "));
  return Number(numbers[names.indexOf("OutDestUnreachs")] ?? 0);
}

/** Parses nft's JSON of the set. Throws on anything else. */
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

/**
 * Where the parts of the fleet listen for each other, which guests of this host must not reach: their
 * connections leave with this node's address, and could use up what is kept for it there. The server names
 * the places (`host:port`) with each heartbeat; the host's own addresses are closed to guests in any case.
 *
 * Owns a table of the host beside the node's own, which is replaced when the places change and stays while no
 * agent runs.
 *
 * Always: the table has the addresses of all places when it was written. A name is resolved again every
 * RESOLVE_MS, and keeps its addresses while it cannot be resolved: guests could delay the answers.
 */
import { lookup } from "node:dns/promises";
import { isIPv4, isIPv6 } from "node:net";
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import type { Block } from "./addresses.ts";
import { NFT, run } from "./programs.ts";
import { closedRules, type Destination } from "./rules.ts";

const RESOLVE_MS = 60_000;

export interface ClosedOptions {
  readonly block: Block;
  readonly clock: Clock;
  readonly log: Log;
  /** Replace nft, and the system's resolver. For tests. */
  readonly apply?: (rules: string) => Promise<unknown>;
  readonly resolve?: (name: string) => Promise<readonly string[]>;
}

const applyRules = (rules: string): Promise<unknown> => run(NFT, rules);
const resolveName = async (name: string): Promise<readonly string[]> =>
  (await lookup(name, { family: 4, all: true })).map(({ address }) => address);

export class ClosedDestinations {
  readonly #options: ClosedOptions;
  #rules: string | null = null;
  #places = "";
  #resolvedAt = Number.NEGATIVE_INFINITY;
  /** The last addresses of each name that is closed. */
  #resolved: ReadonlyMap<string, readonly string[]> = new Map();
  #isBusy = false;

  constructor(options: ClosedOptions) {
    this.#options = options;
  }

  /** Closes these places, and no others. Never rejects: what fails is tried again with the next call. */
  async close(places: readonly string[]): Promise<void> {
    const { block, clock, log, apply = applyRules } = this.#options;
    const isFresh = clock.monotonic() - this.#resolvedAt < RESOLVE_MS;
    if (this.#isBusy || (isFresh && places.join(" ") === this.#places)) return;
    this.#isBusy = true;
    try {
      const resolved = new Map<string, readonly string[]>();
      const found = (await Promise.all(places.map((place) => this.#destinationsOf(place, resolved)))).flat();
      this.#resolved = resolved;
      const rules = closedRules(block, found);
      if (rules !== this.#rules) await apply(rules);
      this.#rules = rules;
      this.#places = places.join(" ");
      this.#resolvedAt = clock.monotonic();
    } catch (error) {
      log.warn({ reason: messageOf(error) }, "guests could not be kept from where the fleet listens; trying again");
    } finally {
      this.#isBusy = false;
    }
  }

  /**
   * Empty for IPv6, which guests do not have, and for a name that never resolved. Adds the name to
   * `resolved`.
   */
  async #destinationsOf(place: string, resolved: Map<string, readonly string[]>): Promise<readonly Destination[]> {
    const { log, resolve = resolveName } = this.#options;
    const { host, port } = partsOf(place);
    if (host === "" || port < 1 || port > 65_535 || isIPv6(host)) return [];
    if (isIPv4(host)) return [{ address: host, port }];
    const addresses = await resolve(host).catch((error: unknown) => {
      log.debug({ place, reason: messageOf(error) }, "a place of the fleet cannot be resolved now");
      return this.#resolved.get(host) ?? [];
    });
    resolved.set(host, addresses);
    return addresses.filter((address) => isIPv4(address)).map((address) => ({ address, port }));
  }
}

/** The parts of `host:port`. Pure. */
function partsOf(place: string): { readonly host: string; readonly port: number } {
  const [, host = "", port = ""] = /^\[?([^[\]\s]*?)\]?:(\d{1,5})$/.exec(place) ?? [];
  return { host, port: Number(port) };
}

/**
 * The connections to a listener of the fleet that are not yet known to be of a node, or of a server:
 * handshakes in progress, and HTTP without a certificate. Bounds them, so that clients that hold such
 * connections keep no part of the fleet out.
 *
 * Always:
 * - An address has at most PER_ADDRESS_MAX, and all addresses together at most HANDSHAKES_MAX.
 * - A new connection always gets a place. It replaces the oldest one of its address when that has
 *   PER_ADDRESS_MAX: the guests of a node have its address, so what they hold must not keep out what runs on
 *   their host.
 *   When all places are used, it replaces the oldest one of the address that has the most.
 *
 * In memory only.
 */
import { networkOf } from "./address-network.ts";

export const HANDSHAKES_MAX = 256;
export const PER_ADDRESS_MAX = 32;

/** A connection, as far as it is counted. */
export interface Counted {
  readonly remoteAddress?: string | undefined;
  readonly remotePort?: number | undefined;
  destroy(): unknown;
  once(event: "close", listener: () => void): unknown;
}

export class Handshakes {
  /** By address and then by name, in the order of arrival. */
  readonly #byAddress = new Map<string, Map<string, Counted>>();
  #size = 0;

  /** How many connections are counted. */
  get size(): number {
    return this.#size;
  }

  /** Counts a connection until it closes or `end` is called. */
  begin(socket: Counted): void {
    const address = addressOf(socket);
    const mine = this.#byAddress.get(address);
    if (mine !== undefined && mine.size >= PER_ADDRESS_MAX) this.#endOldest(mine);
    else if (this.#size >= HANDSHAKES_MAX) this.#endOldest(this.#heaviest());
    const own = this.#byAddress.get(address) ?? new Map<string, Counted>();
    this.#byAddress.set(address, own.set(nameOf(socket), socket));
    this.#size += 1;
    // A closed socket has no address any more.
    const name = nameOf(socket);
    socket.once("close", () => this.#remove(address, name, socket));
  }

  /** The connection is of the fleet. `socket`: the same connection, perhaps as TLS. */
  end(socket: Counted): void {
    this.#remove(addressOf(socket), nameOf(socket));
  }

  /** The connections of the address that has the most. */
  #heaviest(): ReadonlyMap<string, Counted> {
    let heaviest: ReadonlyMap<string, Counted> = new Map();
    for (const each of this.#byAddress.values()) if (each.size > heaviest.size) heaviest = each;
    return heaviest;
  }

  #endOldest(connections: ReadonlyMap<string, Counted>): void {
    const [oldest] = connections;
    if (oldest === undefined) return;
    const [name, socket] = oldest;
    this.#remove(addressOf(socket), name);
    socket.destroy();
  }

  #remove(address: string, name: string, socket?: Counted): void {
    const own = this.#byAddress.get(address);
    const counted = own?.get(name);
    // The address and port may be those of a later connection.
    if (own === undefined || counted === undefined || (socket !== undefined && counted !== socket)) return;
    own.delete(name);
    this.#size -= 1;
    if (own.size === 0) this.#byAddress.delete(address);
  }
}

const addressOf = ({ remoteAddress = "" }: Counted): string => networkOf(remoteAddress);
const nameOf = ({ remoteAddress, remotePort }: Counted): string => `${remoteAddress} ${remotePort}`;

/**
 * The connections to the listener for nodes that are not yet known to be of a node: handshakes in progress,
 * and HTTP without a certificate. Bounds them, so that clients that hold such connections keep no node out.
 *
 * Always:
 * - An address has at most PER_ADDRESS_MAX, and all addresses together at most HANDSHAKES_MAX.
 * - When all places are used, a new connection replaces the oldest one of the address that has the most. So
 *   an address with few connections gets a place, however many places others hold.
 *
 * In memory only.
 */
import { networkOf } from "@flotilla/base/address-network";

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

  /** Counts a connection until it closes or `end` is called. false: it has no place. */
  begin(socket: Counted): boolean {
    const address = addressOf(socket);
    const count = this.#byAddress.get(address)?.size ?? 0;
    if (count >= PER_ADDRESS_MAX) return false;
    if (this.#size >= HANDSHAKES_MAX && !this.#makeRoom(count)) return false;
    const own = this.#byAddress.get(address) ?? new Map<string, Counted>();
    this.#byAddress.set(address, own.set(nameOf(socket), socket));
    this.#size += 1;
    // A closed socket has no address any more.
    const name = nameOf(socket);
    socket.once("close", () => this.#remove(address, name, socket));
    return true;
  }

  /** The connection is of a node. `socket`: the same connection, perhaps as TLS. */
  end(socket: Counted): void {
    this.#remove(addressOf(socket), nameOf(socket));
  }

  /** Ends the oldest connection of the address that has the most. false: none has more than `count`. */
  #makeRoom(count: number): boolean {
    let heaviest: Map<string, Counted> | undefined;
    for (const each of this.#byAddress.values()) if (each.size > (heaviest?.size ?? count)) heaviest = each;
    const [oldest] = heaviest ?? [];
    if (oldest === undefined) return false;
    const [name, socket] = oldest;
    this.#remove(addressOf(socket), name);
    socket.destroy();
    return true;
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

/**
 * Which address and which name is whose in the network of a node's machines. Pure.
 *
 * Every machine has the same address in its guest, because each has a network namespace of its own: nothing is
 * renumbered when a guest is restored or copied. A namespace is tied to the host by a pair of interfaces whose two
 * addresses are from the node's block; the place in the block is the machine's user, which no two of a node share.
 *
 * Always: neither range is one that anybody routes. 192.0.0.0/29 is set aside for the two ends of a translator
 * (RFC 7335); 240.0.0.0/4 is reserved, Linux treats it as any other address, and none of it leaves the host, because
 * all is translated on the way out. So no network that a machine may want to reach is hidden behind them.
 */
import { USER_ID_FIRST, USERS_PER_RANGE } from "../host/user-ids.ts";

export const GUEST_ADDRESS = "192.0.0.2";
export const GATEWAY_ADDRESS = "192.0.0.1";
export const GUEST_PREFIX_LENGTH = 30;
/** Of the guest's interface and of the gateway's: the same in every machine, so a restored guest's neighbours stay true. */
export const GUEST_MAC = "02:f1:07:11:1a:02";
export const GATEWAY_MAC = "02:f1:07:11:1a:01";
/** The interface that the guest's packets come out of, in the machine's namespace. */
export const TAP_NAME = "tap0";
/** The namespace's end of the pair that ties it to the host. */
export const UPLINK_NAME = "up0";
/** Of the host's ends of all Flotillas on a host. */
export const HOST_END_PREFIX = "flo";
/** Where the node agent answers names: at an address of the block, so nothing else on the host is in the way. */
export const NAME_SERVER_PORT = 53_053;

/** Blocks of 16,384 addresses in 240.0.0.0/5. */
export const BLOCKS = 8192;
const BLOCKS_FIRST = 240 * 2 ** 24;
const BLOCK_ADDRESSES = 16_384;
const BLOCK_PREFIX_LENGTH = 18;

/** What a node has of the host's network. */
export interface Block {
  /** In hexadecimal: part of the names of interfaces and tables. */
  readonly id: string;
  /** All addresses, as a network. */
  readonly network: string;
  readonly nameServer: string;
  /** What the names of the host's ends begin with. */
  readonly hostEndPrefix: string;
  /** The node's own nftables table. */
  readonly table: string;
  readonly first: number;
}

export function blockOf(index: number): Block {
  const id = index.toString(16).padStart(4, "0");
  const first = BLOCKS_FIRST + index * BLOCK_ADDRESSES;
  return {
    id,
    network: `${addressOf(first)}/${BLOCK_PREFIX_LENGTH}`,
    nameServer: addressOf(first + 2 * USERS_PER_RANGE),
    hostEndPrefix: `${HOST_END_PREFIX}${id}-`,
    table: `flotilla_${id}`,
    first,
  };
}

/** A machine's pair of interfaces. */
export interface Pair {
  /** The host's end: at most 15 characters. */
  readonly hostEnd: string;
  readonly hostAddress: string;
  /** The namespace's end. */
  readonly machineAddress: string;
}

/** null for a user that is no machine's: templates and probes have no way out of their namespace. */
export function pairOf(block: Block, uid: number): Pair | null {
  if (uid < USER_ID_FIRST) return null;
  const slot = (uid - USER_ID_FIRST) % USERS_PER_RANGE;
  return {
    hostEnd: `${block.hostEndPrefix}${slot.toString(16).padStart(3, "0")}`,
    hostAddress: addressOf(block.first + 2 * slot),
    machineAddress: addressOf(block.first + 2 * slot + 1),
  };
}

function addressOf(number: number): string {
  return [24, 16, 8, 0].map((shift) => Math.floor(number / 2 ** shift) % 256).join(".");
}

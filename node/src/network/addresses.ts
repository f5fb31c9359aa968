/**
 * The addresses and interface names in the network of a node's machines. Pure.
 *
 * Every machine has the same address in its guest, because each has its own network namespace: nothing is
 * renumbered when a guest is restored or copied. A pair of interfaces (veth) connects a namespace to the
 * host; their two addresses are from the node's block, at the index of the machine's user, which is unique on
 * the node.
 *
 * Always: neither range is routed anywhere, so they hide no network that a machine may want to reach.
 * - 192.0.0.0/29 is reserved for the two ends of an address translator (RFC 7335).
 * - 240.0.0.0/4 is reserved. Linux treats it like any other range, and none of it leaves the host, because
 *   all traffic is translated on the way out.
 */
import { USER_ID_FIRST, USERS_PER_RANGE } from "../host/user-ids.ts";

export const GUEST_ADDRESS = "192.0.0.2";
export const GATEWAY_ADDRESS = "192.0.0.1";
export const GUEST_PREFIX_LENGTH = 30;
/**
 * MAC of the guest's and the gateway's interface: the same in every machine, so the ARP cache of a restored
 * guest stays valid.
 */
export const GUEST_MAC = "02:f1:07:11:1a:02";
export const GATEWAY_MAC = "02:f1:07:11:1a:01";
/** The interface that carries the guest's packets, in the machine's namespace. */
export const TAP_NAME = "tap0";
/** The interface of a VMM that is to replace the machine's; afterwards it is called TAP_NAME. */
export const NEXT_TAP_NAME = "tap1";
/** What was TAP_NAME, until the VMM that was replaced has ended. */
export const FORMER_TAP_NAME = "tap2";
/** The namespace's end of the veth pair. */
export const UPLINK_NAME = "up0";
/** Prefix of the host's ends, of all Flotilla nodes on a host. */
export const HOST_END_PREFIX = "flo";
/**
 * Where the node agent answers DNS queries: on an address of the block, so it conflicts with nothing else on
 * the host.
 */
export const NAME_SERVER_PORT = 53_053;

/** Blocks of 16,384 addresses in 240.0.0.0/5. */
export const BLOCKS = 8192;
const BLOCKS_FIRST = 240 * 2 ** 24;
const BLOCK_ADDRESSES = 16_384;
const BLOCK_PREFIX_LENGTH = 18;

/** The part of the host's network that belongs to one node. */
export interface Block {
  /** In hexadecimal; part of the names of interfaces and tables. */
  readonly id: string;
  /** All its addresses, in CIDR notation. */
  readonly network: string;
  readonly nameServer: string;
  /** Prefix of the host's ends of this node. */
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

/** A machine's veth pair. */
export interface VethPair {
  /** The host's end: at most 15 characters. */
  readonly hostEnd: string;
  readonly hostAddress: string;
  /** The namespace's end. */
  readonly machineAddress: string;
}

/** null for a user that does not belong to a machine: templates and probes have no uplink. */
export function vethPairOf(block: Block, uid: number): VethPair | null {
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

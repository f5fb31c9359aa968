/**
 * The rules of the network, as input for nft and ip. Pure.
 *
 * There are four tables, each of which isolates a machine on its own:
 * - `machine`, in a machine's own namespace, made before its VMM runs. It passes only answers to the host's
 *   connections, until a policy opens `egress`. The VMM has no privileges in the namespace, so neither it nor
 *   its guest can change the table; packets from the VMM's own sockets are dropped as well. A connection from
 *   the host whose other end is gone, because the machine was moved or suspended, is reset: otherwise the
 *   guest would try for a quarter of an hour.
 * - the node's table, on the host: isolates machines from the host and from each other, regardless of their
 *   namespaces.
 * - the node's table of closed destinations, on the host: keeps guests from where the fleet listens;
 * - the guard table, only on a host that did not forward before Flotilla: forwards only machines' packets.
 *
 * Always:
 * - an input replaces the earlier rules in one transaction, and applying it again changes nothing;
 * - only addresses, numbers and names that were checked or made here are inserted, never a user's text.
 */
import {
  type Block,
  GATEWAY_ADDRESS,
  GATEWAY_MAC,
  GUEST_ADDRESS,
  FORMER_TAP_NAME,
  GUEST_PREFIX_LENGTH,
  HOST_END_PREFIX,
  NAME_SERVER_PORT,
  NEXT_TAP_NAME,
  type VethPair,
  TAP_NAME,
  UPLINK_NAME,
} from "./addresses.ts";
import { USERS_PER_RANGE } from "../host/user-ids.ts";
import type { Policy } from "./policy.ts";

/**
 * Destinations that no policy opens: the host's loopback, what clouds tell the host and not its guests (at
 * link-local addresses; also at one of Azure and one of Alibaba, which give credentials to any caller),
 * multicast, our own.
 */
const NEVER_ALLOWED = [
  ...["0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4"],
  ...["168.63.129.16", "100.100.100.200"],
];
/** This many machines at their limit fill the host's connection table, which the control plane uses too. */
const MACHINES_THAT_FILL = 128;
const CONNECTIONS_MIN = 256;
const CONNECTIONS_MAX = 8192;
/**
 * Limits of added connections. Those that have ended do not count, and stay in the kernel's tables for 10 s,
 * in memory that no machine is charged for.
 */
const NEW_PER_SECOND = 1_000;
const NEW_AT_ONCE = 2_048;
/**
 * How long the tables keep connections that both ends have closed, which do not count. With the kernel's 2
 * minutes a few guests would fill the host's table, and one would take all the host's ports to an address.
 */
const TIME_WAIT_SECONDS = 10;
const ENDED = `ct timeout ended { protocol tcp; l3proto ip; policy = { time_wait : ${TIME_WAIT_SECONDS} }; }`;
/** Packets to the name server, which is a part of the agent: also what it drops takes its time. */
const QUERIES_PER_SECOND = 500;
const QUERIES_AT_ONCE = 1_000;

/** The limit of tracked connections of one machine, from the limit of the whole host. */
export function connectionsMax(ofHost: number): number {
  return Math.min(Math.max(Math.floor(ofHost / MACHINES_THAT_FILL), CONNECTIONS_MIN), CONNECTIONS_MAX);
}

/** Denied destinations that are recorded for a minute. */
const DENIED_MAX = 128;

const GUARD_TABLE = "flotilla_guard";

/** Only for a host that does not forward, so that enabling forwarding for machines forwards nothing else. */
export function guardRules(): string {
  return `add table ip ${GUARD_TABLE}
delete table ip ${GUARD_TABLE}
table ip ${GUARD_TABLE} {
  chain forward {
    type filter hook forward priority filter - 10; policy accept;
    iifname "${HOST_END_PREFIX}*" accept
    oifname "${HOST_END_PREFIX}*" accept
    drop
  }
}
`;
}

export function hostRules({ table, hostEndPrefix, network, nameServer }: Block): string {
  const ours = `"${hostEndPrefix}*"`;
  return `add table ip ${table}
delete table ip ${table}
table ip ${table} {
  ${ENDED}
  set connections { type ipv4_addr; size ${USERS_PER_RANGE}; flags dynamic; }
  chain connections { }
  chain input {
    type filter hook input priority filter - 5; policy accept;
    iifname != ${ours} accept
    ip saddr != ${network} drop
    ct state established,related accept
    jump connections
    ip daddr ${nameServer} meta l4proto { tcp, udp } th dport ${NAME_SERVER_PORT} accept
    reject with icmp admin-prohibited
  }
  chain output {
    type filter hook output priority filter - 5; policy accept;
    oifname ${ours} meta skuid != 0 drop
  }
  chain forward {
    type filter hook forward priority filter - 5; policy accept;
    iifname ${ours} oifname "${HOST_END_PREFIX}*" drop
    iifname ${ours} ip saddr != ${network} drop
    iifname ${ours} ct state new jump connections
    iifname ${ours} tcp flags syn tcp option maxseg size set rt mtu
    oifname ${ours} ct state established,related accept
    oifname ${ours} drop
  }
  chain outgoing {
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr ${network} oifname != "${HOST_END_PREFIX}*" masquerade
  }
}
`;
}

/**
 * Limits what each machine has in the host's table of connections, to the outside and to the name server. A
 * guest can make the table of its namespace forget a connection that the host's keeps: by a reset whose TTL
 * ends there, or by the end of its VM.
 */
export const connectionRules = ({ table }: Pick<Block, "table">, connections: number): string =>
  `flush chain ip ${table} connections
add rule ip ${table} connections add @connections { ip saddr ct count over ${connections} } drop
add rule ip ${table} connections ct timeout set "ended"
`;

/** A port of an IPv4 address. */
export interface Destination {
  readonly address: string;
  readonly port: number;
}

export const closedTableOf = ({ table }: Pick<Block, "table">): string => `${table}_closed`;

/** Refuses guests' connections to these destinations, and to no others. */
export function closedRules(block: Block, destinations: readonly Destination[]): string {
  const table = closedTableOf(block);
  const elements = [...new Set(destinations.map(({ address, port }) => `${address} . ${port}`))].toSorted();
  const content = elements.length === 0 ? "" : ` elements = { ${elements.join(", ")} }`;
  return `add table ip ${table}
delete table ip ${table}
table ip ${table} {
  set closed { type ipv4_addr . inet_service;${content} }
  chain forward {
    type filter hook forward priority filter - 6; policy accept;
    iifname "${block.hostEndPrefix}*" ip daddr . tcp dport @closed reject with icmp admin-prohibited
  }
}
`;
}

/** The table of a machine's namespace, closed. */
function machineRules({ nameServer }: Block, { hostAddress }: VethPair, connections: number): string {
  return `table inet machine {
  ${ENDED}
  set denied { type ipv4_addr . inet_proto . inet_service; size ${DENIED_MAX}; flags dynamic,timeout; timeout 60s; }
  set networks { type ipv4_addr; flags interval; auto-merge; }
  set resolved { type ipv4_addr; flags timeout; }
  chain egress { }
  chain names { }
  chain forward {
    type filter hook forward priority filter; policy drop;
    ip daddr ${nameServer} limit rate over ${QUERIES_PER_SECOND}/second burst ${QUERIES_AT_ONCE} packets drop
    ct state established,related accept
    iifname "${UPLINK_NAME}" oifname "${TAP_NAME}" ct status dnat accept
    iifname != "${TAP_NAME}" drop
    meta nfproto != ipv4 drop
    ip saddr != ${GUEST_ADDRESS} drop
    ct state new limit rate over ${NEW_PER_SECOND}/second burst ${NEW_AT_ONCE} packets drop
    ct state new ct count over ${connections} drop
    ct state new ct timeout set "ended"
    ip daddr ${nameServer} ct status dnat accept
    oifname "${UPLINK_NAME}" ip daddr != { ${NEVER_ALLOWED.join(", ")} } jump egress
    meta l4proto { tcp, udp } update @denied { ip daddr . meta l4proto . th dport }
    meta l4proto != { tcp, udp } update @denied { ip daddr . meta l4proto . 0 }
    reject with icmpx admin-prohibited
  }
  chain input {
    type filter hook input priority filter; policy drop;
    ct state established,related accept
    iifname "lo" accept
    iifname "${TAP_NAME}" meta nfproto ipv4 meta l4proto tcp reject with tcp reset
    iifname "${TAP_NAME}" meta nfproto ipv4 reject
  }
  chain output {
    type filter hook output priority filter; policy drop;
    oifname { "lo", "${TAP_NAME}" } accept
  }
  chain incoming {
    type nat hook prerouting priority dstnat; policy accept;
    iifname "${UPLINK_NAME}" ip saddr ${hostAddress} meta l4proto tcp dnat ip to ${GUEST_ADDRESS}
    iifname "${TAP_NAME}" ip daddr ${GATEWAY_ADDRESS} jump names
  }
  chain outgoing {
    type nat hook postrouting priority srcnat; policy accept;
    oifname "${UPLINK_NAME}" masquerade
    oifname "${TAP_NAME}" snat ip to ${GATEWAY_ADDRESS}
  }
}
`;
}

/**
 * Opens a machine's table according to its policy, except to the blocked networks, and removes the rules of
 * an earlier policy.
 */
export function policyRules(
  { mode, networks, hosts }: Policy,
  { nameServer }: Block,
  blocked: readonly string[],
): string {
  const lines = ["egress", "names"].map((chain) => `flush chain inet machine ${chain}`);
  if (blocked.length > 0) {
    lines.push("add set inet machine blocked { type ipv4_addr; flags interval; auto-merge; }");
    lines.push("flush set inet machine blocked", `add element inet machine blocked { ${blocked.join(", ")} }`);
    lines.push("add rule inet machine egress ip daddr @blocked return");
  }
  lines.push("flush set inet machine networks");
  if (networks.length > 0) lines.push(`add element inet machine networks { ${networks.join(", ")} }`);
  if (mode === "open") lines.push("add rule inet machine egress accept");
  if (mode === "allowCidrs") {
    lines.push("add rule inet machine egress ip daddr @networks accept");
    lines.push("add rule inet machine egress ip daddr @resolved accept");
  }
  if (mode === "open" || hosts.length > 0) {
    const target = `${nameServer}:${NAME_SERVER_PORT}`;
    lines.push(`add rule inet machine names meta l4proto { tcp, udp } th dport 53 dnat ip to ${target}`);
  }
  return `${lines.join("\n")}\n`;
}

/** Adds addresses of names for `holdMs`. */
export function resolvedRules(addresses: readonly string[], holdMs: number): string {
  const set = "element inet machine resolved";
  const seconds = Math.ceil(holdMs / 1000);
  // An existing element keeps its old timeout unless it is deleted first; all of it is one transaction.
  return addresses
    .map((one) => `add ${set} { ${one} }\ndelete ${set} { ${one} }\nadd ${set} { ${one} timeout ${seconds}s }\n`)
    .join("");
}

/** How to make a VMM's namespace: inputs for the named programs. */
export interface NamespaceSetup {
  readonly kind: "own";
  /** The host's end, which an earlier VMM of the same user may still hold for a moment. null: no uplink. */
  readonly hostEnd: string | null;
  /** The machine's end, of which the host may still have that VMM's connections. null: no uplink. */
  readonly machineAddress: string | null;
  /** nft, inside the namespace, before any interface exists. */
  readonly rules: string;
  /** ip, inside the namespace. Descriptor 9 is the host's namespace. */
  readonly inside: string;
  /** ip, on the host. */
  readonly outside: string;
}

/** How a VMM joins the namespace of the one that it is to replace. */
export interface NamespaceJoin {
  readonly kind: "joined";
  /** The process of the other VMM. */
  readonly pid: number;
  /** Interfaces that an earlier attempt may have left, and that no guest uses. */
  readonly leftovers: readonly string[];
  /** ip, inside the namespace. */
  readonly inside: string;
}

/** An interface for the next VMM, which carries nothing before `nextTap`. */
export function namespaceJoin(pid: number, uid: number): NamespaceJoin {
  const inside = asText([
    `tuntap add dev ${NEXT_TAP_NAME} mode tap user ${uid}`,
    `link set ${NEXT_TAP_NAME} address ${GATEWAY_MAC}`,
    `address add ${GATEWAY_ADDRESS}/${GUEST_PREFIX_LENGTH} dev ${NEXT_TAP_NAME}`,
  ]);
  return { kind: "joined", pid, leftovers: [NEXT_TAP_NAME, FORMER_TAP_NAME], inside };
}

/**
 * Gives the guest's packets to the next VMM's interface, which gets the name that all rules use. Addresses,
 * the other interface and tracked connections stay. Both guests are paused. For ip.
 */
export const nextTap = (): string =>
  asText([
    `link set ${TAP_NAME} down`,
    `link set ${TAP_NAME} name ${FORMER_TAP_NAME}`,
    `link set ${NEXT_TAP_NAME} name ${TAP_NAME}`,
    `link set ${TAP_NAME} up`,
  ]);

/** Gives them to `tap`, whatever an agent that was killed has left; `others` are removed. For ip. */
export const onlyTap = (tap: string, others: readonly string[]): string =>
  asText([
    ...others.map((other) => `link delete ${other}`),
    ...(tap === TAP_NAME ? [] : [`link set ${tap} down`, `link set ${tap} name ${TAP_NAME}`]),
    `link set ${TAP_NAME} up`,
  ]);

/** `connections`: the limit of the machine's concurrent connections. */
export function namespaceSetup(
  block: Block,
  pair: VethPair | null,
  { uid, connections }: { readonly uid: number; readonly connections: number },
): NamespaceSetup {
  const tap = [
    "link set lo up",
    `tuntap add dev ${TAP_NAME} mode tap user ${uid}`,
    `link set ${TAP_NAME} address ${GATEWAY_MAC}`,
    `address add ${GATEWAY_ADDRESS}/${GUEST_PREFIX_LENGTH} dev ${TAP_NAME}`,
    `link set ${TAP_NAME} up`,
  ];
  if (pair === null)
    return { kind: "own", hostEnd: null, machineAddress: null, rules: "", inside: asText(tap), outside: "" };
  const { hostEnd, hostAddress, machineAddress } = pair;
  const uplink = [
    `link add ${UPLINK_NAME} type veth peer name ${hostEnd} netns /proc/self/fd/9`,
    `address add ${machineAddress}/31 dev ${UPLINK_NAME}`,
    `link set ${UPLINK_NAME} up`,
    `route add default via ${hostAddress}`,
  ];
  const outside = [`address add ${hostAddress}/31 dev ${hostEnd}`, `link set ${hostEnd} up`];
  return {
    kind: "own",
    hostEnd,
    machineAddress,
    rules: machineRules(block, pair, connections),
    inside: asText([...tap, ...uplink]),
    outside: asText(outside),
  };
}

function asText(lines: readonly string[]): string {
  return `${lines.join("\n")}\n`;
}

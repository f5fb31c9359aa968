/**
 * How much of this server one caller, and all callers together, may hold of memory (bodies), descriptors
 * (connections) and work (open requests). docs/decisions/0018-what-one-caller-may-hold.md has the reasons.
 */
import { readFile } from "node:fs/promises";

const MIB = 1024 * 1024;

/**
 * Bodies that are held whole while they are read and processed. A tenant may have two of the largest at once.
 * The parsed value takes about as much again, so the total is a quarter of a small server's memory.
 */
export const TENANT_BODY_BYTES_MAX = 64 * MIB;
export const ALL_BODY_BYTES_MAX = 256 * MIB;
/** Reports of nodes have a separate bound, so tenants' bodies cannot cut nodes off. */
export const NODE_BODY_BYTES_MAX = 16 * MIB;
export const ALL_NODE_BODY_BYTES_MAX = 128 * MIB;
/** A body of at least this size, or of unknown length, is read only after its target was found. */
export const UNSEEN_BODY_BYTES_MAX = 64 * 1024;

/** Deadlines of a body that is held: a grace period, then a minimum rate, and a maximum. */
export const BODY_GRACE_MS = 15_000;
export const BODY_BYTES_PER_SECOND_MIN = 16 * 1024;
export const BODY_MS_MAX = 5 * 60_000;
/** How long a streamed body may be silent while it is being read; longer for a bridge. */
export const STREAM_SILENCE_MS_MAX = 60_000;
export const BRIDGE_SILENCE_MS_MAX = 5 * 60_000;
/** How much of a refused body is still read, so that its caller gets to the answer. */
export const DRAIN_BYTES_MAX = 32 * MIB;
export const DRAIN_MS_MAX = 10_000;
/** A connection must have sent the whole head of a request within this time. */
export const HEAD_MS_MAX = 20_000;
/** How long a refused connection is kept, for its caller to read the reason. */
export const LAST_ANSWER_MS = 1_000;

/** Descriptors for other things than connections: the database, files, the links to nodes. */
const DESCRIPTORS_RESERVED = 128;
/** Each takes about 20 kB. For more, use a proxy or several servers. */
const CONNECTIONS_MAX = 10_000;
const CONNECTIONS_MIN = 16;
/** One idle connection to a guest is kept for this many connections of callers, out of what is reserved. */
const CONNECTIONS_PER_IDLE = 16;
const IDLE_MAX = 256;
/** Concurrent requests of one tenant: commands, followed logs, terminals, bridges. */
const OPEN_PER_TENANT_MAX = 1_024;

export interface ConnectionBounds {
  /** Connections at once. */
  readonly connections: number;
  /** From one address, except proxies and this host. */
  readonly perAddress: number;
  /** Open requests of one tenant. */
  readonly openPerTenant: number;
  /** Connections to guests that wait for another request. */
  readonly idleToGuests: number;
}

/**
 * `descriptors`: how many this process may have. A request that is forwarded to a node uses a second one.
 * Pure.
 */
export function connectionBounds(descriptors: number, perAddress: number | null): ConnectionBounds {
  const affordable = Math.floor((descriptors - DESCRIPTORS_RESERVED) / 2);
  const connections = Math.max(CONNECTIONS_MIN, Math.min(CONNECTIONS_MAX, affordable));
  return {
    connections,
    perAddress: Math.min(connections, perAddress ?? Math.ceil(connections / 4)),
    openPerTenant: Math.min(OPEN_PER_TENANT_MAX, Math.ceil(connections / 2)),
    idleToGuests: Math.min(IDLE_MAX, Math.floor(connections / CONNECTIONS_PER_IDLE)),
  };
}

/** The limit of this process. Node raises it to the system's maximum at start. */
export async function descriptorLimit(): Promise<number> {
  const line = /^Max open files\s+(\d+|unlimited)/m.exec(await readFile("/proc/self/limits", "utf8"))?.[1];
  return line === undefined || line === "unlimited" ? Number.POSITIVE_INFINITY : Number(line);
}

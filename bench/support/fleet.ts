/**
 * The nodes, tenants and machines of `fleet-size`: node n runs the machines of tenant n. Pure.
 */
import { createHash } from "node:crypto";

export const NODES = 1_000;
export const MACHINES_EACH = 100;
/** Tenants 2 to this one also have machines that have never been started, which the bench starts. */
export const STARTING_TENANTS = 101;
export const STARTS_EACH = 100;

export const nodeId = (n: number): string => `node-${String(n).padStart(4, "0")}`;
export const tenantId = (n: number): string => `bench-${n}`;
/** Each node has its own address on loopback, so that the server has its own connections to each. */
export const hostOf = (n: number): string => `127.1.${n >> 8}.${n & 255}`;

export const credentialOf = (n: number): string =>
  `node_${createHash("sha256").update(`bench ${n}`).digest("base64url")}`;

/** Running machines are 1 to MACHINES_EACH, those to start follow. */
export const machineId = (tenant: number, n: number): string =>
  `mach-${createHash("md5")
    .update(`${tenantId(tenant)} ${n}`)
    .digest("hex")}`;

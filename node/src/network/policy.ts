/**
 * What a machine may reach, parsed from its specification. Pure.
 *
 * Always: an entry that cannot be parsed is an error, never skipped: a list that is shorter than its owner
 * believes would be noticed late. IPv6 networks are skipped, without risk, because guests have no IPv6.
 */
import { isIPv4, isIPv6 } from "node:net";
import type { MachineSpec } from "@flotilla/contract/link/link";

export interface Policy {
  readonly mode: MachineSpec["network"]["mode"];
  /** IPv4 networks such as 10.1.0.0/16, of `allowCidrs`. */
  readonly networks: readonly string[];
  /** Host names of `allowCidrs`: lower case, without the final dot. `*.name` is every name below `name`. */
  readonly hosts: readonly string[];
}

const NAME = /^([a-z0-9_]([a-z0-9_-]{0,62})\.)*[a-z0-9_][a-z0-9_-]{0,62}$/;

/** Throws an Error that quotes the invalid entry. */
export function policyOf({ mode, cidrs, hosts }: MachineSpec["network"]): Policy {
  if (mode !== "allowCidrs") return { mode, networks: [], hosts: [] };
  const names = (hosts ?? []).map(normalName);
  const addresses = names.filter(isIPv4);
  const networks = ipv4NetworksOf([...(cidrs ?? []), ...addresses]);
  return { mode, networks, hosts: names.filter((name) => !isIPv4(name)).map(checkedHost) };
}

/**
 * The networks of IPv4 among these, each once, with the host bits cleared. Throws an Error that quotes the
 * invalid entry.
 */
export const ipv4NetworksOf = (texts: readonly string[]): readonly string[] => [
  ...new Set(texts.map(networkOf).filter((network) => network !== null)),
];

/** The form in which names are compared: without case and final dot. */
export function normalName(name: string): string {
  return name.toLowerCase().replace(/\.$/, "");
}

/**
 * Whether `name`, in its normal form, is one of the policy's hosts. A guest may query any bytes: a resolver
 * would end the name at a zero byte, or read a backslash as an escape, and resolve a name that is not below
 * the host.
 */
export function allowsName({ hosts }: Policy, name: string): boolean {
  return (
    NAME.test(name) && hosts.some((host) => (host.startsWith("*.") ? name.endsWith(host.slice(1)) : name === host))
  );
}

function checkedHost(host: string): string {
  if (host.length > 253 || !NAME.test(host.replace(/^\*\./, "")))
    throw new Error(`${JSON.stringify(host)} is not a host name; correct the machine's network`);
  return host;
}

/** With the host bits cleared; null for IPv6. */
function networkOf(text: string): string | null {
  const [address = "", length, ...rest] = text.trim().split("/");
  const invalid = new Error(
    `${JSON.stringify(text)} is not a network such as 10.1.0.0/16; correct the machine's network`,
  );
  const bits = length === undefined ? 32 : Number(length);
  if (rest.length > 0 || (length !== undefined && !/^\d{1,3}$/.test(length))) throw invalid;
  if (isIPv6(address) && bits <= 128) return null;
  if (!isIPv4(address) || bits > 32) throw invalid;
  const number = address.split(".").reduce((sum, part) => sum * 256 + Number(part), 0);
  const first = Math.floor(number / 2 ** (32 - bits)) * 2 ** (32 - bits);
  return `${[24, 16, 8, 0].map((shift) => Math.floor(first / 2 ** shift) % 256).join(".")}/${bits}`;
}

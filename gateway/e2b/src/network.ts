/**
 * What a sandbox may reach, as the network of its machine. Pure.
 *
 * Flotilla knows everything, nothing, or what is listed; E2B also knows everything except what is listed.
 * That is refused by name, as are its proxies and rules.
 */
import { notImplemented, Refused } from "./refused.ts";
import type { Fields } from "./fields.ts";

export interface NetworkRequest {
  readonly mode: "open" | "blocked" | "allowCidrs";
  readonly cidrs?: readonly string[];
  readonly hosts?: readonly string[];
}

const EVERYTHING: readonly string[] = ["0.0.0.0/0", "::/0"];
const ABSENT = ["egressProxy", "rules", "httpsPorts"] as const;

/** Throws a Refused for what machines do not know. */
export function networkOf(fields: Fields, hasInternet: boolean): NetworkRequest {
  for (const name of ABSENT) {
    const value = fields[name];
    if (value !== undefined && value !== null) throw notImplemented(`network.${name}`);
  }
  const denied = textsOf(fields["denyOut"], "network.denyOut");
  const allowed = textsOf(fields["allowOut"], "network.allowOut").filter((each) => !EVERYTHING.includes(each));
  const isDenied = !hasInternet || denied.some((each) => EVERYTHING.includes(each));
  if (!isDenied && denied.length > 0) throw notImplemented("network.denyOut of less than everything");
  if (!isDenied) return { mode: "open" };
  if (allowed.length === 0) return { mode: "blocked" };
  const isAddress = (text: string): boolean => /^[0-9.]+(\/\d+)?$/.test(text) || text.includes(":");
  return {
    mode: "allowCidrs",
    cidrs: allowed
      .filter(isAddress)
      .map((each) => (each.includes("/") ? each : `${each}/${each.includes(":") ? 128 : 32}`)),
    hosts: allowed.filter((each) => !isAddress(each)),
  };
}

function textsOf(value: unknown, name: string): readonly string[] {
  if (value === undefined || value === null) return [];
  if (!Array.isArray(value) || value.some((each) => typeof each !== "string"))
    throw new Refused(400, `${name} is not a list of addresses`);
  return value as readonly string[];
}

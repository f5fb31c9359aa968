/**
 * Resolves names that tenants choose, of webhooks and registries, without a thread of this process.
 *
 * The system's resolver keeps a thread until a name's servers answer, and the process has two for that. A
 * name whose servers are silent takes 20 s: a dozen of them would make the deliveries or pulls of all tenants
 * late, and the process's own connections. So the DNS servers of /etc/resolv.conf are asked directly.
 *
 * Always: a name in /etc/hosts means what that says. Other sources of the system's resolver are not asked,
 * nor are its search domains. Rejects when a name has no address, or its servers do not answer.
 */
import { Resolver } from "node:dns/promises";
import { readFile } from "node:fs/promises";
import { isIP } from "node:net";
import type { Resolve, ResolvedAddress } from "./checked-request.ts";

/** Time of the first try of each server. A delivery waits 15 s in all, a pull longer. */
const TRY_MS = 2_000;
const TRIES = 2;

export interface ResolverOptions {
  /** Instead of those in /etc/resolv.conf. */
  readonly servers?: readonly string[];
  /** Instead of /etc/hosts. */
  readonly hostsPath?: string;
}

export function nameResolver({ servers, hostsPath = "/etc/hosts" }: ResolverOptions = {}): Resolve {
  return async (hostname) => {
    const hosts = await readFile(hostsPath, "utf8").catch(() => "");
    const listed = addressesIn(hosts, hostname);
    if (listed.length > 0) return listed;
    // Reads /etc/resolv.conf, which may have changed since the last one.
    const resolver = new Resolver({ timeout: TRY_MS, tries: TRIES });
    if (servers !== undefined) resolver.setServers(servers);
    const [four, six] = await Promise.allSettled([resolver.resolve4(hostname), resolver.resolve6(hostname)]);
    if (four.status === "rejected" && six.status === "rejected") throw four.reason;
    return [four, six].flatMap((answer) => (answer.status === "fulfilled" ? answer.value.flatMap(resolved) : []));
  };
}

/** The addresses that a hosts file has for a name. */
function addressesIn(hosts: string, hostname: string): readonly ResolvedAddress[] {
  const wanted = hostname.replace(/\.$/, "").toLowerCase();
  return hosts.split("\n").flatMap((line) => {
    const [address = "", ...names] = line.replace(/#.*/, "").trim().toLowerCase().split(/\s+/);
    return names.includes(wanted) ? resolved(address) : [];
  });
}

function resolved(address: string): readonly ResolvedAddress[] {
  const family = isIP(address);
  return family === 0 ? [] : [{ address, family }];
}

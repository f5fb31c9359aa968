/**
 * Tells public internet addresses from all others. Pure.
 *
 * Always: an address is public only if it is known to be. In IPv6 only 2000::/3 is allocated, without the
 * parts that embed an IPv4 address or are reserved for documentation; IPv4 inside IPv6 (mapped, translated)
 * is never public. The ranges are those of IANA's special-purpose registries, and the address at which Azure
 * serves each of its hosts what is for that host.
 */
import { BlockList, isIP } from "node:net";

const PUBLIC_IPV6 = new BlockList();
PUBLIC_IPV6.addSubnet("2000::", 3, "ipv6");

const SPECIAL = new BlockList();
for (const [network, bits] of [
  ["0.0.0.0", 8],
  ["10.0.0.0", 8],
  ["100.64.0.0", 10],
  ["127.0.0.0", 8],
  ["168.63.129.16", 32],
  ["169.254.0.0", 16],
  ["172.16.0.0", 12],
  ["192.0.0.0", 24],
  ["192.0.2.0", 24],
  ["192.88.99.0", 24],
  ["192.168.0.0", 16],
  ["198.18.0.0", 15],
  ["198.51.100.0", 24],
  ["203.0.113.0", 24],
  ["224.0.0.0", 3],
] as const)
  SPECIAL.addSubnet(network, bits, "ipv4");
for (const [network, bits] of [
  ["2001::", 23],
  ["2001:db8::", 32],
  ["2002::", 16],
  ["3fff::", 20],
] as const)
  SPECIAL.addSubnet(network, bits, "ipv6");

/** Whether an address, in the notation of a resolver or a URL, belongs to the public internet. */
export function isPublicAddress(address: string): boolean {
  switch (isIP(address)) {
    case 4:
      return !SPECIAL.check(address, "ipv4");
    case 6:
      return !address.includes("%") && PUBLIC_IPV6.check(address, "ipv6") && !SPECIAL.check(address, "ipv6");
    default:
      return false;
  }
}

/**
 * The network as which an address is counted, where each caller may have a bounded amount. Pure.
 *
 * Always: an address of IPv6 counts by its network of 64 bits, of which one caller has all; IPv4 inside IPv6
 * counts as IPv4.
 */
import { isIPv6 } from "node:net";

/** An address without the mapping of IPv4 into IPv6, and without the interface of a link-local one. */
export const withoutMapping = (address: string): string =>
  address.replace(/^::ffff:(?=\d+\.)/i, "").replace(/%.*$/, "");

/** The address itself, or the network of 64 bits of an address of IPv6, such as `2001:db8:0:1::/64`. */
export function networkOf(address: string): string {
  const plain = withoutMapping(address);
  if (!isIPv6(plain)) return plain;
  const [head = "", tail] = plain.toLowerCase().split("::");
  const front = head === "" ? [] : head.split(":");
  const back = tail === undefined || tail === "" ? [] : tail.split(":");
  const zeros =
    tail === undefined ? [] : Array.from({ length: Math.max(0, 8 - front.length - back.length) }, () => "0");
  const groups = [...front, ...zeros, ...back].slice(0, 4).map((group) => group.replace(/^0+(?=.)/, ""));
  return `${groups.join(":")}::/64`;
}

/**
 * From which address a request came: of the connection, or, behind a proxy of the operator's, what that proxy
 * says.
 *
 * Always: `X-Forwarded-For` is believed only as far as trusted proxies wrote it, from its end; so a caller
 * can name any address in it and gains nothing. Addresses of IPv6 count by their network of 64 bits, of which
 * one caller has all.
 */
import { BlockList, isIP, isIPv6 } from "node:net";
import { networkOf, withoutMapping } from "@flotilla/base/address-network";

/** More than any chain of proxies writes. */
const HOPS_MAX = 16;
/** What a connection over a Unix socket has for an address. */
const LOCAL = "local";

export interface CallerAddress {
  /** In the form in which addresses are counted. */
  readonly address: string;
  /** The connection is a proxy's that did not say for whom it asks, or a program's on this host. */
  readonly isProxy: boolean;
}

export class TrustedProxies {
  readonly #list = new BlockList();

  /** Addresses and networks, such as `10.0.0.1` and `fd00::/8`, which the settings have checked. */
  constructor(networks: readonly string[]) {
    for (const text of networks) {
      const [address = "", prefix] = text.split("/");
      const family = isIPv6(address) ? "ipv6" : "ipv4";
      this.#list.addSubnet(address, Number(prefix ?? (family === "ipv6" ? 128 : 32)), family);
    }
  }

  has(address: string): boolean {
    const plain = withoutMapping(address);
    return isIP(plain) !== 0 && this.#list.check(plain, isIPv6(plain) ? "ipv6" : "ipv4");
  }

  /** `forwardedFor`: the header, whose last address the nearest proxy wrote. */
  callerOf(peer: string | undefined, forwardedFor: string | undefined): CallerAddress {
    if (peer === undefined) return { address: LOCAL, isProxy: true };
    if (!this.has(peer)) return { address: networkOf(peer), isProxy: false };
    const hops = forwardedFor === undefined ? [] : forwardedFor.split(",").slice(-HOPS_MAX);
    for (let at = hops.length - 1; at >= 0; at -= 1) {
      const hop = hops[at]?.trim() ?? "";
      if (isIP(withoutMapping(hop)) === 0) break;
      if (!this.has(hop)) return { address: networkOf(hop), isProxy: false };
    }
    return { address: networkOf(peer), isProxy: true };
  }
}

/**
 * Whether others could read a request on its way. Pure.
 *
 * Always: what a request says of its way counts only as far as a trusted proxy wrote it; a request that came
 * through any proxy is not one of this host, unless the whole chain is.
 */
import { withoutMapping } from "@flotilla/base/address-network";

/** `local`: from this host. `encrypted`: over https. `open`: neither is known. */
export type Way = "local" | "encrypted" | "open";

export interface WayFacts {
  /** The address of the connection; undefined: a UNIX socket's. */
  readonly peer: string | undefined;
  /** A trusted proxy has sent it. */
  readonly isFromProxy: boolean;
  readonly forwardedFor: string | undefined;
  readonly forwardedProto: string | undefined;
}

export function wayOf({ peer, isFromProxy, forwardedFor, forwardedProto }: WayFacts): Way {
  if (isFromProxy && forwardedProto === "https") return "encrypted";
  const hops = forwardedFor === undefined ? [] : forwardedFor.split(",").map((hop) => hop.trim());
  return [...hops, ...(peer === undefined ? [] : [peer])].every(isLoopback) ? "local" : "open";
}

function isLoopback(address: string): boolean {
  const plain = withoutMapping(address);
  return plain === "::1" || /^127(\.\d{1,3}){3}$/.test(plain);
}

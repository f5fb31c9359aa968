/**
 * What happens to every request for a machine or an app, in this order: request id → host, transfer coding →
 * way in → rate of the address or the key → access → rate and open requests of the owner → turn → forward →
 * log.
 *
 * Always:
 * - There are two ways in: a public address (address.ts), and the bridge of the API, for callers with a key
 *   (bridge.ts). All other requests are another service's.
 * - Callers without access learn nothing.
 */
import type { IncomingMessage } from "node:http";
import { after, answerAlways, checkHead, finish, openRequest } from "../http/request.ts";
import type { HttpService } from "../http/server.ts";
import type { Route } from "../machines/addresses.ts";
import { answerAddress } from "./address.ts";
import type { IngressParts } from "./admit.ts";
import { answerBridge, type BridgeRoute, bridgeRouteOf } from "./bridge.ts";

type Way = { readonly address: Route; readonly target: string } | { readonly bridge: BridgeRoute };

/** Serves requests for machines and apps; `rest` serves the others, and those of nodes. */
export function ingressService(parts: IngressParts, rest: HttpService): HttpService {
  const wayOf = ({ headers, url = "" }: IncomingMessage): Way | undefined => {
    const target = targetOf(url);
    const { addresses, apps } = parts;
    const domain = addresses.routeOfDomain(headers.host, (name) => apps.appOf(name) !== undefined);
    const address = domain ?? addresses.routeOf(headers.host, target);
    if (address !== undefined) return { address, target };
    const bridge = bridgeRouteOf(target);
    return bridge && { bridge };
  };
  return {
    serve(incoming) {
      const way = incoming.isFromNodes ? undefined : wayOf(incoming.message);
      if (way === undefined) return rest.serve(incoming);
      const request = openRequest(parts, incoming);
      const answering = answerAlways(parts, request, async () => {
        checkHead(request.message);
        return await ("bridge" in way ? answerBridge(parts, request, way.bridge) : answerAddress(parts, request, way));
      });
      const name = "bridge" in way ? "bridge" : "ingress";
      return after(answering, (outgoing) => finish(parts, request, { outgoing, name }));
    },
    passesUpgrade: (message) => wayOf(message) !== undefined || rest.passesUpgrade(message),
  };
}

/** Path and query, also of a target that begins with an origin (RFC 9112, 3.2.2). */
function targetOf(url: string): string {
  if (url.startsWith("/")) return url;
  const target = url.replace(/^https?:\/\/[^/?]*/i, "");
  return target === url || target.startsWith("/") ? target : `/${target}`;
}

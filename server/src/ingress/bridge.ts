/**
 * The connect bridge: any method on `/v1/machines/{id}/connect/{port}/…`, passed on to a published port, for
 * callers with a key of the machine's tenant or a connect token of the machine.
 *
 * Always: neither reaches the guest.
 */
import { Refusal } from "@flotilla/contract/errors";
import { grants } from "@flotilla/contract/scopes";
import { authenticateConnectToken, authenticateKey, bearerOf } from "../auth/authenticate.ts";
import type { KnownKey } from "../auth/key-cache.ts";
import { hasConnectTokenForm } from "../auth/keys.ts";
import { forHolder } from "../db/holder.ts";
import { type Outgoing, passOn } from "../http/answer.ts";
import { guardOf, type OpenRequest, rawOf, refuseSlowly, searchOf } from "../http/request.ts";
import { forward, type ForwardOptions } from "./forward.ts";
import { withoutCredential } from "./head.ts";
import { admit, type IngressParts, takeRequest } from "./admit.ts";

/** The five segments before the guest's path. */
const SEGMENTS = /^\/([^/?]+)\/([^/?]+)\/([^/?]+)\/([^/?]+)\/([^/?]+)(?=[/?]|$)/;
const ID_CHARACTERS_MAX = 256;
/** The parameter that holds a key or token on a WebSocket handshake. */
const KEY_PARAMETER = "access_token";

export interface BridgeRoute {
  /** Empty: no machine can have it. */
  readonly id: string;
  readonly port: string;
  /** The guest's path and query, byte for byte. */
  readonly path: string;
}

/** undefined: the path is not of the bridge. Pure. */
export function bridgeRouteOf(target: string): BridgeRoute | undefined {
  const found = SEGMENTS.exec(target);
  if (found === null) return undefined;
  const [version, family, id = "", verb, port = ""] = found.slice(1).map(decoded);
  if (version !== "v1" || family !== "machines" || verb !== "connect") return undefined;
  const isPossible = id.length <= ID_CHARACTERS_MAX && !id.includes("\0") && id.isWellFormed();
  const rest = target.slice(found[0].length);
  return { id: isPossible ? id : "", port, path: rest.startsWith("/") ? rest : `/${rest}` };
}

/** A `%` that does not begin an escape is taken literally. */
function decoded(segment: string): string {
  if (!segment.includes("%")) return segment;
  try {
    return decodeURIComponent(segment.replace(/%(?![0-9A-Fa-f]{2})/g, "%25"));
  } catch {
    return segment;
  }
}

export async function answerBridge(
  parts: IngressParts,
  request: OpenRequest,
  { id, port, path }: BridgeRoute,
): Promise<Outgoing> {
  const key = await refuseSlowly(parts, request, () => authenticate(parts, request, id));
  request.key = key;
  const { tenantId, keyId, expiresAt } = key;
  await takeRequest(parts, request, { owner: key, side: "api" });
  if (key.isSuspended)
    throw new Refusal("payment_required", "the tenant is suspended; ask the operator to reactivate it");
  if (!grants(key.scopes, "machine:exec")) throw new Refusal("missing_scope", "missing scope: machine:exec");
  if (id === "") throw new Refusal("not_found", "no such resource");
  const right = {
    ...{ what: "the connection", keyId, expiresAt, tenantId, machineId: id },
    ...{ shareHash: null, publicAppId: null, sessionHash: null },
  };
  await admit(parts, request, { right, owner: key, side: "api" });
  const target: ForwardOptions = {
    target: { machine: { id, tenantId }, port: portOf(id, port) },
    raw: rawOf(parts, request),
    path: withoutCredential(path, KEY_PARAMETER),
    prefix: `/v1/machines/${id}/connect/${port}`,
    signal: request.presence.signal,
    closing: request.presence.closing,
  };
  return passOn(await forHolder(tenantId, () => forward(parts, target)));
}

function authenticate(parts: IngressParts, request: OpenRequest, machineId: string): KnownKey | Promise<KnownKey> {
  const { message, upgrade, url } = request;
  const inQuery = upgrade === undefined ? null : searchOf(url).get(KEY_PARAMETER);
  const bearer = bearerOf(message.headers.authorization) ?? inQuery ?? undefined;
  const guard = guardOf(parts, request);
  return hasConnectTokenForm(bearer)
    ? authenticateConnectToken(parts.connectTokens, bearer, { machineId, guard })
    : authenticateKey(parts, bearer, guard);
}

/** Throws a Refusal for what is not a port. */
function portOf(id: string, text: string): number {
  const port = /^[1-9]\d{0,4}$/.test(text) ? Number(text) : Number.NaN;
  if (port <= 65_535) return port;
  const shown = JSON.stringify(text.slice(0, 16));
  throw new Refusal("not_found", `connect to machine ${id} failed: ${shown} is not a port number from 1 to 65535`);
}

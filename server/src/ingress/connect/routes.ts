/**
 * The handlers of the connect bridge, one for every method, and of its tokens.
 */
import { Refusal } from "@flotilla/contract/errors";
import { makeConnectToken } from "../../auth/keys.ts";
import type { HandlersOf, Request } from "../../api/handler.ts";
import type { PassedReply } from "../../http/answer.ts";
import { forward, type ForwardServices } from "../forward.ts";
import { withoutCredential } from "../head.ts";
import { makeMachineToken } from "./tokens.ts";

type Bridge =
  | "connectGet"
  | "connectHead"
  | "connectPost"
  | "connectPut"
  | "connectPatch"
  | "connectDelete"
  | "connectOptions";

/** What precedes the guest's path: an origin, if any, and the five segments of the route, however escaped. */
const BRIDGE_PATH = /^(?:https?:\/\/[^/]*)?(?:\/[^/?]+){5}/;

export function connectHandlers(services: ForwardServices): HandlersOf<Bridge | "createConnectToken"> {
  const connect = async (request: Pick<Request, "signal" | "raw"> & BridgeRequest): Promise<PassedReply> => {
    const { caller, params, raw, signal } = request;
    const prefix = `/v1/machines/${params.id}/connect/${params.port}`;
    const port = /^[1-9]\d{0,4}$/.test(params.port) ? Number(params.port) : Number.NaN;
    if (!(port <= 65_535))
      throw new Refusal(
        "not_found",
        `connect to machine ${params.id} failed: ${JSON.stringify(params.port.slice(0, 16))} is not a port number from 1 to 65535`,
      );
    const machine = { id: params.id, tenantId: caller.tenantId };
    return forward(services, { machine, port, raw, path: pathOf(raw), prefix, signal });
  };
  return {
    connectGet: connect,
    connectHead: connect,
    connectPost: connect,
    connectPut: connect,
    connectPatch: connect,
    connectDelete: connect,
    connectOptions: connect,
    async createConnectToken({ caller, params, body, secretBytes }) {
      const { tenantId, keyId } = caller;
      const ttlSeconds = body?.ttlSeconds ?? null;
      const request = { tenantId, keyId, machineId: params.id, ttlSeconds };
      const made = await makeMachineToken(services.context, request, makeConnectToken(secretBytes));
      const expiresAt = new Date(made.expiresAt).toISOString();
      return { status: 201, body: { token: made.token, expiresAt, machineId: params.id } };
    },
  };
}

interface BridgeRequest {
  readonly caller: { readonly tenantId: string };
  readonly params: { readonly id: string; readonly port: string };
}

/** The guest's path and query, byte for byte, without a key in the query. */
function pathOf({ url }: Request["raw"]): string {
  const rest = url.replace(BRIDGE_PATH, "");
  const path = rest.startsWith("/") ? rest : `/${rest}`;
  return withoutCredential(path, "access_token");
}

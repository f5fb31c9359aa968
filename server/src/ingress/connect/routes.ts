/**
 * The handler that makes tokens for the connect bridge.
 */
import type { HandlersOf } from "../../api/handler.ts";
import { makeConnectToken } from "../../auth/keys.ts";
import type { Context } from "../../context.ts";
import { makeMachineToken } from "./tokens.ts";

export const connectHandlers = (context: Context): HandlersOf<"createConnectToken"> => ({
  async createConnectToken({ caller, params, body, secretBytes }) {
    const { tenantId, keyId } = caller;
    const ttlSeconds = body?.ttlSeconds ?? null;
    const request = { tenantId, keyId, machineId: params.id, ttlSeconds };
    const made = await makeMachineToken(context, request, makeConnectToken(secretBytes));
    const expiresAt = new Date(made.expiresAt).toISOString();
    return { status: 201, body: { token: made.token, expiresAt, machineId: params.id } };
  },
});

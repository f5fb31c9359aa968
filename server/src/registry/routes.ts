/**
 * The handler of collections.
 */
import type { HandlersOf } from "../api/handler.ts";
import type { Context } from "../context.ts";
import { operationInfo } from "../operations/view.ts";
import { requestCollection } from "./collect.ts";
import type { Registry } from "./registry.ts";

export const registryHandlers = (parts: {
  readonly context: Context;
  readonly registry: Registry;
}): HandlersOf<"collectRegistry"> => ({
  async collectRegistry(request) {
    const { tenantId } = request.caller;
    const operation = await requestCollection(parts, { id: request.newId("operation"), tenantId });
    return { status: 202, body: operationInfo(operation) };
  },
});

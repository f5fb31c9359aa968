/**
 * The handlers of operations: list, get and cancel.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { Context } from "../context.ts";
import type { HandlersOf } from "../api/handler.ts";
import { page, parsePosition, positionOf } from "../api/paging.ts";
import { findOperation, listOperations, requestCancel } from "./store.ts";
import { operationInfo } from "./view.ts";

/** A tenant may have many of the last 30 days, and all of them would be in memory at once. */
const LIMIT_DEFAULT = 1000;

export function operationHandlers(context: Context): HandlersOf<"listOperations" | "getOperation" | "cancelOperation"> {
  const { db } = context;
  return {
    async listOperations({ caller, query }) {
      const { limit = LIMIT_DEFAULT } = query;
      const after = parsePosition(query.cursor, "operation");
      const found = await listOperations(db, { tenantId: caller.tenantId, after, limit: limit + 1 });
      const { items, headers } = page(found, limit, "/v1/operations", { cursorOf: positionOf });
      return { status: 200, headers, body: items.map(operationInfo) };
    },
    async getOperation({ caller, params }) {
      const operation = await findOperation(db, { tenantId: caller.tenantId, id: params.id });
      if (operation === undefined)
        throw new Refusal("not_found", `operation ${params.id} was not found; they are kept for 30 days`);
      return { status: 200, body: operationInfo(operation) };
    },
    async cancelOperation({ caller, params }) {
      const operation = await requestCancel(context, { tenantId: caller.tenantId, id: params.id });
      if (operation === undefined)
        throw new Refusal("not_found", `operation ${params.id} was not found; they are kept for 30 days`);
      return { status: 202, body: operationInfo(operation) };
    },
  };
}

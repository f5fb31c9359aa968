/**
 * The handler of events: list.
 */
import type { Context } from "../context.ts";
import type { HandlersOf } from "../http/handler.ts";
import { page, parseSequence } from "../http/paging.ts";
import { listTenantEvents } from "./store.ts";
import { tenantEvent } from "./view.ts";

const LIMIT_DEFAULT = 100;

export function eventHandlers({ db }: Context): HandlersOf<"listEvents"> {
  return {
    async listEvents({ caller, query }) {
      const limit = query.limit ?? LIMIT_DEFAULT;
      const found = await listTenantEvents(db, {
        tenantId: caller.tenantId,
        machineId: query.machine ?? null,
        after: parseSequence(query.cursor),
        limit: limit + 1,
      });
      const { items, headers } = page(found, limit, "/v1/events", {
        cursorOf: ({ position }) => String(position),
        ...(query.machine === undefined ? {} : { query: { machine: query.machine } }),
      });
      return { status: 200, headers, body: items.map(tenantEvent) };
    },
  };
}

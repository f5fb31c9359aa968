/**
 * The handler of events: list, or follow.
 */
import { Refusal } from "@flotilla/contract/errors";
import { grants } from "@flotilla/contract/scopes";
import type { Context } from "../context.ts";
import type { HandlersOf } from "../api/handler.ts";
import { OF_EVENT, page, parseSequence } from "../api/paging.ts";
import { followEvents } from "./follow.ts";
import { findNewest, listTenantEvents } from "./store.ts";
import { tenantEvent } from "./view.ts";

const LIMIT_DEFAULT = 100;

export function eventHandlers(context: Context): HandlersOf<"listEvents"> {
  return {
    async listEvents({ caller, query, headers: sent }) {
      const { machine = null, app = null, type = null } = query;
      if (machine !== null && app !== null) {
        const text = "machine and app: an event is of a machine or of an app; name one of them";
        throw new Refusal("invalid_body", text, { field: "app" });
      }
      const isNewestFirst = query.order === "desc";
      if (isNewestFirst && query.follow === true)
        throw new Refusal("invalid_body", "order: a stream begins with the oldest event; leave out order or follow", {
          field: "order",
        });
      const filter = { tenantId: caller.tenantId, machineId: machine, appId: app, type };
      if (query.follow === true) {
        // A reader that connects again repeats its address, whose cursor is older.
        const last = sent["last-event-id"];
        const after = parseSequence(typeof last === "string" ? last : query.cursor, OF_EVENT);
        const hasAudit = grants(caller.scopes, "audit:read");
        const watched = query.changes === true ? { ...caller, hasNodes: caller.isAdmin, hasAudit } : null;
        return { status: 200, body: await followEvents(context, { ...filter, after }, watched) };
      }
      const limit = query.limit ?? LIMIT_DEFAULT;
      const after = parseSequence(query.cursor, OF_EVENT);
      const isFiltered = machine !== null || app !== null || type !== null;
      // Found first: the list then has all that match up to this one.
      const newest = isFiltered || isNewestFirst ? await findNewest(context.db, caller.tenantId) : null;
      const found = await listTenantEvents(context.db, { ...filter, after, isNewestFirst, limit: limit + 1 });
      const { items, headers: links } = page(found, limit, "/v1/events", {
        cursorOf: ({ position }) => String(position),
        query: {
          ...(machine === null ? {} : { machine }),
          ...(app === null ? {} : { app }),
          ...(type === null ? {} : { type }),
          ...(isNewestFirst ? { order: "desc" } : {}),
        },
      });
      const isWhole = isNewestFirst && !isFiltered && after === null;
      const last = isNewestFirst ? (isWhole ? items[0] : undefined) : items.at(-1);
      const cursor = last?.position ?? newest ?? after;
      const headers = { ...links, ...(cursor === null ? {} : { "x-cursor": String(cursor) }) };
      return { status: 200, headers, body: items.map(tenantEvent) };
    },
  };
}

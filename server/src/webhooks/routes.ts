/**
 * Serves /v1/webhooks.
 */
import type { HandlersOf } from "../api/handler.ts";
import { listPage } from "../api/list-page.ts";
import { OF_EVENT, page, parseSequence } from "../api/paging.ts";
import { listDeliveries } from "./delivery-store.ts";
import {
  changeWebhook,
  createWebhook,
  redeliver,
  replay,
  requireWebhook,
  rotate,
  sendTest,
  type WebhookParts,
} from "./manage.ts";
import { makeWebhookSecret } from "./sign.ts";
import { listWebhooks, removeWebhook } from "./store.ts";
import { deliveryInfo, webhookInfo, type WebhookRecord } from "./view.ts";
import { notFound } from "../missing.ts";

const DELIVERIES_DEFAULT = 100;

type Names =
  | "listWebhooks"
  | "createWebhook"
  | "getWebhook"
  | "updateWebhook"
  | "deleteWebhook"
  | "rotateWebhookSecret"
  | "testWebhook"
  | "replayWebhook"
  | "listWebhookDeliveries"
  | "redeliverWebhook";

export function webhookHandlers(parts: WebhookParts): HandlersOf<Names> {
  const { context } = parts;
  const info = (record: WebhookRecord) => webhookInfo(record, context.clock.now());
  const nameOf = ({ caller, params }: { caller: { tenantId: string }; params: { id: string } }) => ({
    tenantId: caller.tenantId,
    id: params.id,
  });
  return {
    listWebhooks: async ({ caller, query }) => {
      const found = (await listWebhooks(context.db, caller.tenantId)).map(info);
      const keyOf = ({ createdAt, id }: (typeof found)[number]): string => `${createdAt} ${id}`;
      return { status: 200, ...listPage(found, query, { path: "/v1/webhooks", keyOf }) };
    },
    createWebhook: async (request) => {
      const { tenantId } = request.caller;
      const { url, description = null, types = null } = request.body;
      const secret = makeWebhookSecret(request.secretBytes);
      const id = request.newId("webhook");
      const made = await createWebhook(parts, { tenantId, id, url, description, types, secret });
      return { status: 201, body: { ...info(made), secret } };
    },
    getWebhook: async (request) => ({ status: 200, body: info(await requireWebhook(context, nameOf(request))) }),
    updateWebhook: async (request) => {
      const { url, description, types, enabled } = request.body;
      const change = { url: url ?? undefined, description, types, isEnabled: enabled ?? undefined };
      return { status: 200, body: info(await changeWebhook(parts, nameOf(request), change)) };
    },
    deleteWebhook: async (request) => {
      if (!(await removeWebhook(context.db, nameOf(request)))) throw notFound("webhook", request.params.id);
      return { status: 204 };
    },
    rotateWebhookSecret: async (request) => {
      const secret = makeWebhookSecret(request.secretBytes);
      const keepPreviousHours = request.body?.keepPreviousHours ?? undefined;
      await rotate(parts, nameOf(request), { secret, ...(keepPreviousHours !== undefined && { keepPreviousHours }) });
      return { status: 200, body: { id: request.params.id, secret } };
    },
    testWebhook: async (request) => {
      const queued = await sendTest(context, nameOf(request), request.newId("event"));
      return { status: 202, body: deliveryInfo(queued) };
    },
    replayWebhook: async (request) => {
      const cursor = parseSequence(request.body?.cursor ?? undefined, OF_EVENT);
      return { status: 202, body: info(await replay(context, nameOf(request), cursor)) };
    },
    listWebhookDeliveries: async (request) => {
      const { limit = DELIVERIES_DEFAULT, cursor, status } = request.query;
      const { id } = await requireWebhook(context, nameOf(request));
      const filter = { webhookId: id, status: status ?? null, before: parseSequence(cursor), limit: limit + 1 };
      const found = await listDeliveries(context.db, filter);
      const { items, headers } = page(found, limit, `/v1/webhooks/${id}/deliveries`, {
        cursorOf: ({ sequence }) => String(sequence),
        ...(status === undefined ? {} : { query: { status } }),
      });
      return { status: 200, headers, body: items.map(deliveryInfo) };
    },
    redeliverWebhook: async (request) => {
      const queued = await redeliver(context, nameOf(request), request.params.event);
      return { status: 202, body: deliveryInfo(queued) };
    },
  };
}

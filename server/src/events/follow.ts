/**
 * Follows a tenant's events as Server-Sent Events: those after a position, then new ones as they are
 * recorded.
 *
 * Always:
 * - The `id` of each is its cursor, so a reader that connects again with the last one (`Last-Event-ID`)
 *   misses none, on any server. An `id` alone moves a reader past events that its filter leaves out.
 * - Looks for new events take their turns among the statements of their tenant, however many follow.
 * - A reader that asks for it also gets what has changed and has no events; it misses that while it is not
 *   connected.
 * - A slow reader makes reads wait. A database that does not answer delays events, and does not end the
 *   stream.
 */
import type { TenantEvent } from "@flotilla/contract/events";
import type { Context } from "../context.ts";
import { forHolder } from "../db/holder.ts";
import { StreamedAnswer } from "../api/streamed-answer.ts";
import { ChangeWatch, type Watched } from "./changes.ts";
import { listTenantEvents, readMarks, type TenantEventsPage } from "./store.ts";
import { type TenantEventRecord, tenantEvent } from "./view.ts";
import { matchesType } from "@flotilla/contract/event-types";

/** Between two looks for new events. */
const LOOK_MS = 1_000;
const PAGE = 100;

/** Rejects when the first events cannot be read. */
export async function followEvents(
  { clock, db }: Context,
  page: Omit<TenantEventsPage, "limit">,
  watched: Watched | null = null,
): Promise<StreamedAnswer> {
  // They come after the request, which counts for its tenant only until it is answered.
  const read = (after: number | null) =>
    forHolder(page.tenantId, () => listTenantEvents(db, { ...page, type: null, after, limit: PAGE }));
  const first = await read(page.after);
  const answer = new StreamedAnswer(clock, (reason) => {
    const text = reason ?? "the server stops; follow the events again to continue";
    return `event: error\ndata: ${text}\n\n`;
  });
  const watch = new ChangeWatch();
  const look = async (): Promise<string> =>
    watched === null
      ? ""
      : watch
          .look(await forHolder(page.tenantId, () => readMarks(db, clock.now(), watched)))
          .map((change) => `event: changed\ndata: ${JSON.stringify(change)}\n\n`)
          .join("");
  await look();
  void sendAll(answer, { first, read, look, type: page.type, after: page.after });
  return answer;
}

interface Following {
  readonly first: readonly TenantEventRecord[];
  readonly read: (after: number | null) => Promise<readonly TenantEventRecord[]>;
  /** What has changed since the look before, as frames. */
  readonly look: () => Promise<string>;
  /** Others are read as well, so that no look begins before an event that an earlier one has read. */
  readonly type: string | null;
  readonly after: number | null;
}

/** Never rejects. Ends when the caller has disconnected. */
async function sendAll(answer: StreamedAnswer, { first, read, look, type, after }: Following): Promise<void> {
  let position = after;
  for (let events = first; !answer.gone.aborted; events = await read(position).catch(() => [])) {
    const chosen = events.filter((event) => type === null || matchesType(event.type, [type]));
    const last = events.at(-1)?.position ?? position;
    const passed = last === (chosen.at(-1)?.position ?? position) ? "" : `id: ${last}\n\n`;
    await answer.write(chosen.map((record) => frameOf(tenantEvent(record))).join("") + passed);
    position = last;
    if (events.length === PAGE) continue;
    await answer.wait(LOOK_MS);
    await answer.write(await look().catch(() => ""));
  }
}

const frameOf = (event: TenantEvent): string => `id: ${event.cursor}\ndata: ${JSON.stringify(event)}\n\n`;

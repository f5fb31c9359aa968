/**
 * Whether this process can serve: it queries the database, with its own deadline.
 *
 * Always: concurrent callers share one query.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { Context } from "../context.ts";
import { ping } from "./store.ts";

export interface ReadyOptions {
  readonly isStopping: () => boolean;
  /** Whether the embedded database's disk is full, or some of its reserved space is used. */
  readonly isDiskFull: () => boolean;
  /** What it still waits for, as text; null: it can reach its nodes, from now on. null: it needs none. */
  readonly nodesAwaited: (() => Promise<string | null>) | null;
}

const DATABASE_TIMEOUT_MS = 2_000;
const RETRY_SECONDS = "1";

/** The function that is returned rejects with a Refusal that says why it cannot serve. */
export function readiness(context: Context, options: ReadyOptions): () => Promise<void> {
  let { nodesAwaited } = options;
  let awaited: string | null = null;
  const check = singleFlight(async () => {
    await ping(context.db);
    awaited = nodesAwaited === null ? null : await nodesAwaited();
    if (awaited === null) nodesAwaited = null;
  });
  return async () => {
    if (options.isStopping()) throw notReady("the server is stopping");
    if (options.isDiskFull()) throw notReady("the server's disk is full; delete machines or images, or enlarge it");
    const isInTime = await inTime(context, check());
    if (!isInTime) throw notReady(`the database did not answer within ${DATABASE_TIMEOUT_MS} ms`);
    if (awaited !== null) throw notReady(awaited);
  };
}

const notReady = (why: string): Refusal =>
  new Refusal("unavailable", why, { headers: { "retry-after": RETRY_SECONDS } });

/** Makes callers during the work share its result. */
export function singleFlight(work: () => Promise<void>): () => Promise<void> {
  let running: Promise<void> | null = null;
  return () => {
    running ??= work().finally(() => {
      running = null;
    });
    return running;
  };
}

/** Whether it finished in time. Rejects when it failed. */
export async function inTime({ clock }: Context, work: Promise<void>): Promise<boolean> {
  const waiting = new AbortController();
  const late = clock.sleep(DATABASE_TIMEOUT_MS, waiting.signal).then(() => false);
  try {
    return await Promise.race([work.then(() => true), late]);
  } finally {
    waiting.abort();
    work.catch(() => undefined);
  }
}

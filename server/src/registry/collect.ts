/**
 * A collection: deletes the blobs of the server's own registry that no manifest names, as an operation.
 *
 * Always:
 * - It runs only while no lease is live, and no lease begins while it runs: a push never loses a blob that it
 *   has found.
 * - A dead server's collection ends with it, and the next one begins a minute later at most.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { Context } from "../context.ts";
import type { OperationRecord, OperationRun, OperationWorker, Reconciler } from "../family.ts";
import { beginOperation } from "../operations/begin.ts";
import { beginCollection, endCollection, readCollectionState } from "./lease-store.ts";
import type { Registry } from "./registry.ts";

const KIND = "registry collection";
const DEADLINE_MS = 60 * 60_000;
/** How long it waits for a moment without a push. */
const WAIT_MS = 30 * 60_000;
const LOOK_MS = 500;
const RUN_MS = 30_000;
const RENEW_MS = 5_000;
const DAY_MS = 24 * 60 * 60_000;
const WAITING = "wait for pushes to end";
const COLLECTING = "delete unused blobs";

type Parts = { readonly context: Context; readonly registry: Registry };

/** Requests a collection. Throws a Refusal where this server's registry is not its own. */
export function requestCollection(
  { context, registry }: Parts,
  { id, tenantId }: { readonly id: string; readonly tenantId: string },
): Promise<OperationRecord> {
  registry.requireAvailable();
  if (!registry.isCollected)
    throw new Refusal("conflict", "the registry is not this server's own; it deletes unused blobs by its own rules");
  return beginOperation(context, {
    ...{ id, tenantId, kind: KIND, input: {}, steps: [WAITING, COLLECTING], deadlineMs: DEADLINE_MS },
    resource: { kind: "registry", id: "registry", name: null },
  });
}

export const collectionWorker = (parts: Parts): OperationWorker => ({
  kind: KIND,
  async work(run) {
    await run.step(WAITING, () => awaitTurn(parts, run));
    await run.step(COLLECTING, () => collect(parts, run));
  },
});

/** Waits for a moment without a lease, which the next step then takes. */
async function awaitTurn({ context }: Parts, { signal, operation }: OperationRun): Promise<string> {
  const { clock } = context;
  const deadline = clock.monotonic() + WAIT_MS;
  while (!(await begin(context, operation.id, false))) {
    signal.throwIfAborted();
    if (clock.monotonic() > deadline)
      throw new Refusal("conflict", "packages were being pushed all the time; try again when fewer are pushed");
    await clock.sleep(LOOK_MS, signal);
  }
  return "nothing is being pushed";
}

const begin = ({ db, clock }: Context, operationId: string, isRenewal: boolean): Promise<boolean> => {
  const now = clock.now();
  return beginCollection(db, { operationId, now, until: now + RUN_MS, isRenewal });
};

async function collect(parts: Parts, run: OperationRun): Promise<string> {
  const { context, registry } = parts;
  const { id: operationId } = run.operation;
  const { clock, db } = context;
  // It was begun by a server that died between the steps, or while it ran.
  if (!(await begin(context, operationId, true))) await awaitTurn(parts, run);
  const over = new AbortController();
  const signal = AbortSignal.any([run.signal, over.signal]);
  const lost = (): void => over.abort(new Error("the collection could not be made longer"));
  const renewing = renew(context, operationId, { signal, lost });
  let endedAt: number | null = null;
  try {
    const { collect: collectBlobs } = registry.backend;
    if (collectBlobs === null) throw new Refusal("conflict", "the registry is not this server's own");
    const deleted = await collectBlobs(signal);
    endedAt = clock.now();
    return deleted === 1 ? "1 blob" : `${deleted} blobs`;
  } finally {
    over.abort();
    await renewing;
    await endCollection(db, { operationId, endedAt });
  }
}

/** Keeps leases from beginning until the signal is aborted. */
async function renew(
  context: Context,
  operationId: string,
  { signal, lost }: { readonly signal: AbortSignal; readonly lost: () => void },
): Promise<void> {
  const { clock } = context;
  let renewedAt = clock.monotonic();
  while (!signal.aborted) {
    await clock.sleep(RENEW_MS, signal);
    if (signal.aborted) return;
    const isRenewed = await begin(context, operationId, true).catch(() => false);
    if (isRenewed) renewedAt = clock.monotonic();
    // Before a lease may begin.
    else if (clock.monotonic() - renewedAt > RUN_MS / 2) return lost();
  }
}

/** Requests a collection each day. */
export function collectionReconciler({ context, registry }: Parts): Reconciler {
  return {
    name: "collections",
    purpose: "requests a collection of the registry each day",
    periodMs: 10 * 60_000,
    wakeOn: [],
    async activate() {
      const { db, clock } = context;
      const counts = { requested: 0 };
      if (!registry.isAvailable() || !registry.isCollected) return { counts, errors: [] };
      const state = await readCollectionState(db);
      if (state === undefined || state.isRequested || clock.now() - state.lastAt < DAY_MS)
        return { counts, errors: [] };
      const { tenantId } = state;
      await requestCollection({ context, registry }, { id: context.ids.make("operation"), tenantId });
      return { counts: { requested: 1 }, errors: [] };
    },
  };
}

/**
 * Operations of a server that dies: it has claimed one, and has not recorded the end of a step.
 */
import assert from "node:assert/strict";
import type { Context } from "../../src/context.ts";
import { sql } from "../../src/db/database.ts";
import type { OperationRecord, OperationWorker } from "../../src/family.ts";
import type { MachineServices } from "../../src/machines/services.ts";
import { type OperationRequest, writeOperation } from "../../src/operations/begin.ts";
import { until } from "../../../test/support/until.ts";
import type { Client } from "./client.ts";
import type { TestServer } from "./server.ts";
import { openTestServices } from "./services.ts";

/** An operation that a server has claimed which does not work on it. */
export const claimedOperation = (
  context: Context,
  request: Omit<OperationRequest, "deadlineMs">,
): Promise<OperationRecord> =>
  context.db.transaction(async (db) => {
    const operation = await writeOperation(context, db, { ...request, deadlineMs: 60_000 });
    await db.execute(sql`
      UPDATE operations SET attempt = 1, leased_until = now() + interval '1 hour' WHERE id = ${request.id}`);
    return operation;
  });

class Killed extends Error {}

/** Works on it as a server that dies before it has recorded the end of the step `last`. */
export async function workUntil(
  server: Pick<TestServer, "context" | "dataDirectory">,
  workerOf: (services: MachineServices) => OperationWorker,
  { operation, last }: { readonly operation: OperationRecord; readonly last: string },
): Promise<void> {
  const services = openTestServices(server);
  const { signal } = new AbortController();
  const step = async (name: string, work: (say: () => void) => Promise<unknown>): Promise<void> => {
    await work(() => undefined);
    if (name === last) throw new Killed();
  };
  await assert.rejects(workerOf(services).work({ operation, signal, step }), Killed);
  await services.stop();
}

/** Another server may claim it from now on. */
export const letLeaseRunOut = (context: Context, id: string, { isCanceled = false } = {}): Promise<number> =>
  context.db.execute(sql`
    UPDATE operations SET leased_until = now() - interval '1 second',
      cancel_requested_at = CASE WHEN ${isCanceled}::boolean THEN now() END
    WHERE id = ${id}`);

/** The status with which it has ended. */
export const endOf = (client: Client, id: string): Promise<string> =>
  until(
    async () => {
      const { status } = (await client.get(`/v1/operations/${id}`)).json;
      return status !== "running" && (status as string);
    },
    { deadlineMs: 60_000, what: `the end of operation ${id}` },
  );

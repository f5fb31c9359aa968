/**
 * Machines used in random order and concurrently, through one of two servers, with crashes of VMs and of the
 * node agent: every answer must be one that docs/states.md and the API promise. test/support/history.ts
 * checks the answers.
 *
 * fast-check shrinks a failed run and names seed and path in its error; FLOTILLA_SEED and FLOTILLA_PATH
 * repeat it, FLOTILLA_PLAYS makes more runs.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { performMany, plays, type Stage } from "../support/any-order.ts";
import { sharedDatabaseUrl } from "../support/database.ts";
import { startFlotilla } from "../support/flotilla.ts";

test("whatever users do with machines, in random order and concurrently, is answered as promised", async () => {
  await using flotilla = await startFlotilla({ servers: 2, databaseUrl: await sharedDatabaseUrl() });
  const stage: Stage = {
    flotilla,
    driver: "fake",
    resources: { cpus: 1, memoryMb: 128, diskGb: 1 },
    lookEveryMs: 15,
    maxMachines: 4,
    maxConcurrentMachines: 2,
    killVm: (client, id) => client.post(`/v1/machines/${id}/exec`, { command: ["crash"] }),
  };
  await performMany(stage, plays({ stepsMax: 24, restarts: 1 }), { playsMax: 30, forMs: 30_000 });
  for (const program of flotilla.nodes) assert.doesNotMatch(await program.log(), /run twice/);
});

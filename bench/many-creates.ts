/**
 * Creates, starts and deletes n machines with the fake driver, sixteen at the same time: none may fail, and none may exist or boot
 * twice.
 *
 * Every create is sent twice with one idempotency key, as by a client that lost the answer. Each of the sixteen has its own tenant.
 * `--n 100000` is for a run on demand: it takes most of an hour.
 */
import { Flotilla } from "@flotilla/sdk/client";
import { ownMessageOf } from "@flotilla/base/errors";
import { monotonic } from "./support/clock.ts";
import { BenchFlotilla, IMAGE } from "./support/flotilla.ts";
import type { Finding } from "./support/report.ts";
import { atMost, summarize } from "./support/statistics.ts";

const AT_ONCE = 16;
const FIRST_ERRORS_MAX = 3;
const RESOURCES = { cpus: 1, memoryMb: 512, diskGb: 1 };

interface Tally {
  readonly createdMs: number[];
  readonly startedMs: number[];
  readonly ids: Set<string>;
  readonly errors: string[];
  /** Creates that gave a second machine, and machines that booted more or less than once. */
  doubles: number;
}

export async function manyCreates(n: number): Promise<Finding> {
  await using flotilla = await BenchFlotilla.start({ driver: "fake" });
  await flotilla.liftLimits();
  const clients: Flotilla[] = [];
  for (let worker = 0; worker < AT_ONCE; worker++) {
    const { id } = await flotilla.client.createTenant({ name: `bench-${worker}` });
    const { key } = await flotilla.client.createApiKey({ tenantId: id });
    clients.push(new Flotilla({ url: flotilla.access.url, apiKey: key, retries: 0 }));
  }
  const tally: Tally = { createdMs: [], startedMs: [], ids: new Set(), errors: [], doubles: 0 };
  const numbers = Array.from({ length: n }, (_, number) => number).values();
  const startedAt = monotonic();
  const work = async (client: Flotilla): Promise<void> => {
    for (const number of numbers)
      await live(client, `bench-${number}`, tally).catch((error: unknown) => tally.errors.push(ownMessageOf(error)));
  };
  await Promise.all(clients.map(work));
  const seconds = (monotonic() - startedAt) / 1000;
  const left = (await Promise.all(clients.map((client) => client.listMachines()))).flat().length;
  return {
    name: "many-creates",
    series: [
      { what: "create", summary: summarize(tally.createdMs) },
      { what: "start", summary: summarize(tally.startedMs) },
    ],
    reaches: [
      atMost("failures", tally.errors.length, 0, ""),
      atMost("machines made or booted twice", tally.doubles + n - tally.errors.length - tally.ids.size, 0, ""),
      atMost("machines left", left, 0, ""),
    ],
    setting: { driver: "fake", machines: n, "at the same time": AT_ONCE },
    notes: [
      `${(n / seconds).toFixed(0)} machines per second, each created, created again, started, looked at and deleted`,
      ...tally.errors.slice(0, FIRST_ERRORS_MAX),
    ],
  };
}

async function live(client: Flotilla, idempotencyKey: string, tally: Tally): Promise<void> {
  const request = { source: { type: "image", reference: IMAGE }, resources: RESOURCES } as const;
  const askedAt = monotonic();
  const { id } = await client.createMachine(request, { idempotencyKey });
  const createdAt = monotonic();
  const repeated = await client.createMachine(request, { idempotencyKey });
  if (repeated.id !== id) tally.doubles += 1;
  const startAt = monotonic();
  await client.startMachine(id);
  tally.startedMs.push(monotonic() - startAt);
  tally.createdMs.push(createdAt - askedAt);
  const events = await client.listMachineEvents(id);
  if (events.filter(({ message }) => message === "machine started").length !== 1) tally.doubles += 1;
  await client.deleteMachine(id);
  tally.ids.add(id);
}

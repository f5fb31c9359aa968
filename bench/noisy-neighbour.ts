/**
 * How much a flooding tenant slows down another one: with request bodies, streams, or image pulls.
 *
 * Each kind begins with a flooded period that is not part of the result, because the server compiles its code
 * for that kind of call then. After it quiet and flooded periods alternate. The flooder has the default plan,
 * the lowest priority, and its own process; the measured tenant has no rate limit. The fake driver is used,
 * so that no machine's own time is included: images are pulled without being built.
 */
import { Flotilla } from "@flotilla/sdk/client";
import { sleep } from "./support/clock.ts";
import { FLOOD_NAMES, type FloodCount, type FloodName, type FloodOrder } from "./support/flood-calls.ts";
import { startFlood } from "./support/flood-process.ts";
import { BenchFlotilla, IMAGE } from "./support/flotilla.ts";
import { type Latencies, Neighbour } from "./support/neighbour.ts";
import type { Finding } from "./support/report.ts";
import { atMost, type Summary, summarize } from "./support/statistics.ts";

const STRETCH_MS = 2_000;
const WARM_UP_MS = 3_000;
/** A flood has full effect when measuring begins, and leaves commands and connections behind when it ends. */
const BEGIN_MS = 300;
const SETTLE_MS = 500;
const P99_MS_MAX = 50;
const MANY = 1_000_000;
/** All scopes except an operator's. */
const SCOPES_OF_STRANGER = ["machine:read", "machine:create", "machine:delete", "machine:exec", "machine:files"];

/** Makes n alternations of each kind. */
export async function noisyNeighbour(n: number): Promise<Finding> {
  await using flotilla = await BenchFlotilla.start({ driver: "fake" });
  const { neighbour, order } = await prepare(flotilla);
  try {
    const all: Found[] = [];
    for (const name of FLOOD_NAMES) all.push(await measure(neighbour, { ...order, floods: [name] }, n));
    return {
      name: "noisy-neighbour",
      series: all.flatMap(({ name, quiet, flooded }) => [
        { what: `${name}: flooded`, summary: allOf(flooded) },
        { what: `${name}: quiet`, summary: allOf(quiet) },
      ]),
      reaches: all.map(({ name, flooded }) => atMost(`${name}, flooded p99`, allOf(flooded).p99Ms, P99_MS_MAX)),
      setting: { turns: n, "seconds a period": STRETCH_MS / 1000, calls: "exec, read and list in turns" },
      notes: all.map(noteOf),
    };
  } finally {
    neighbour.close();
  }
}

/** Prepares two tenants on one Flotilla. */
async function prepare(flotilla: BenchFlotilla): Promise<{ neighbour: Neighbour; order: Omit<FloodOrder, "floods"> }> {
  const { url, headers } = flotilla.access;
  const { client } = flotilla;
  const plan = await client.createPlan({ name: "measured", rateRequestsPerSecond: MANY, rateBurst: MANY });
  const { tenantId } = await client.getCaller();
  await client.updateTenant(tenantId, { planId: plan.id });
  const { machine } = await flotilla.make();
  const stranger = await client.createTenant({ name: "stranger" });
  const { key } = await client.createApiKey({ tenantId: stranger.id, scopes: SCOPES_OF_STRANGER });
  const theirs = new Flotilla({ url, apiKey: key, retries: 0 });
  const flooded = await theirs.createMachine({ source: { type: "image", reference: IMAGE } });
  await theirs.startMachine(flooded.id);
  const neighbour = new Neighbour(url, headers, [
    { what: "exec", method: "POST", path: `/v1/machines/${machine.id}/exec`, body: '{"command":["true"]}' },
    { what: "read", method: "GET", path: `/v1/machines/${machine.id}`, body: "" },
    { what: "list", method: "GET", path: "/v1/machines", body: "" },
  ]);
  await neighbour.call(WARM_UP_MS, new Map());
  return { neighbour, order: { url, key, machineId: flooded.id } };
}

/** The measurements for one kind of flood. */
interface Found {
  readonly name: FloodName;
  readonly quiet: Latencies;
  readonly flooded: Latencies;
  readonly counts: Map<string, number>;
}

async function measure(neighbour: Neighbour, order: FloodOrder, n: number): Promise<Found> {
  const [name = "bodies"] = order.floods;
  const found: Found = { name, quiet: new Map(), flooded: new Map(), counts: new Map() };
  await underFlood(neighbour, order, new Map());
  await sleep(SETTLE_MS);
  for (let turn = 0; turn < n; turn++) {
    await neighbour.call(STRETCH_MS, found.quiet);
    addTo(found.counts, await underFlood(neighbour, order, found.flooded));
    await sleep(SETTLE_MS);
  }
  return found;
}

/** One flooded period; returns what the flooder was answered. */
async function underFlood(neighbour: Neighbour, order: FloodOrder, flooded: Latencies): Promise<FloodCount> {
  await using flood = await startFlood(order);
  flood.begin();
  await sleep(BEGIN_MS);
  await neighbour.call(STRETCH_MS, flooded);
  return await flood.end();
}

function addTo(counts: Map<string, number>, more: FloodCount): void {
  for (const [outcome, count] of Object.entries(more)) counts.set(outcome, (counts.get(outcome) ?? 0) + count);
}

const allOf = (latencies: Latencies): Summary => summarize([...latencies.values()].flat());

function noteOf({ name, quiet, flooded, counts }: Found): string {
  const each = [...flooded].map(([what, ms]) => {
    const [under, without] = [summarize(ms), summarize(quiet.get(what) ?? [])];
    return `${what} ${without.p99Ms.toFixed(1)} to ${under.p99Ms.toFixed(1)} ms`;
  });
  const answered = [...counts].map(([outcome, count]) => `${count} × ${outcome}`).join(", ");
  return `${name}: p99 quiet to flooded: ${each.join(", ")}; the flood's answers ${answered}`;
}

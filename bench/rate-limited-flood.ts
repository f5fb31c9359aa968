/**
 * How much a tenant that calls far above its rate affects another one, over two servers on one PostgreSQL.
 *
 * Turns of three periods: quiet; flooded, in which two programs call each server as fast as it answers, mostly with 429; and the
 * control, in which the same programs call an empty server instead. The programs have the lowest priority, because they represent
 * other hosts. The fake driver is used.
 */
import { Flotilla } from "@flotilla/sdk/client";
import { sleep } from "./support/clock.ts";
import { startEmptyHttp } from "./support/empty-http.ts";
import { startFlood } from "./support/flood-process.ts";
import { IMAGE } from "./support/flotilla.ts";
import { giveLeftovers } from "./support/host.ts";
import { type Latencies, Neighbour } from "./support/neighbour.ts";
import type { Finding } from "./support/report.ts";
import { atMost, type Summary, summarize } from "./support/statistics.ts";
import { startTwoServers, type TwoServers } from "./support/two-servers.ts";

const PERIOD_MS = 3_000;
const WARM_UP_MS = 3_000;
const BEGIN_MS = 500;
const SETTLE_MS = 500;
/** What the flooding tenant may call. */
const RATE = { rateRequestsPerSecond: 100, rateBurst: 200 };
const MANY = { rateRequestsPerSecond: 1_000_000, rateBurst: 1_000_000 };
const RATIO_MAX = 1.2;

interface Field {
  readonly neighbours: readonly Neighbour[];
  readonly urls: readonly string[];
  readonly order: { readonly key: string; readonly machineId: string };
  readonly emptyUrl: string;
}

/** Makes n turns. */
export async function rateLimitedFlood(n: number): Promise<Finding> {
  await using servers = await startTwoServers();
  await using empty = await startEmptyHttp();
  await giveLeftovers(empty.pid);
  const field = await prepare(servers, empty.url);
  const found = { quiet: new Map(), flooded: new Map(), control: new Map() } satisfies Record<string, Latencies>;
  const counts: Record<string, number> = {};
  await measure(field, new Map(), WARM_UP_MS);
  for (let turn = 0; turn < n; turn++) {
    await measure(field, found.quiet, PERIOD_MS);
    await flooded(field, field.urls, { latencies: found.flooded, counts });
    await flooded(field, [field.emptyUrl, field.emptyUrl], { latencies: found.control, counts: {} });
  }
  for (const neighbour of field.neighbours) neighbour.close();
  return findingOf(found, counts, n);
}

async function prepare({ client, urls }: TwoServers, emptyUrl: string): Promise<Field> {
  const tenant = async (name: string, limits: typeof RATE): Promise<{ key: string; machineId: string }> => {
    const plan = await client.createPlan({ name, ...limits });
    const { id } = await client.createTenant({ name, planId: plan.id });
    const { key } = await client.createApiKey({ tenantId: id });
    const theirs = new Flotilla({ url: urls[0] ?? "", apiKey: key, retries: 0 });
    const machine = await theirs.createMachine({ source: { type: "image", reference: IMAGE } });
    await theirs.startMachine(machine.id);
    return { key, machineId: machine.id };
  };
  const measured = await tenant("measured", MANY);
  const machine = `/v1/machines/${measured.machineId}`;
  const headers = { authorization: `Bearer ${measured.key}`, "content-type": "application/json" };
  const neighbours = urls.map(
    (url) =>
      new Neighbour(url, headers, [
        { what: "exec", method: "POST", path: `${machine}/exec`, body: '{"command":["true"]}' },
        { what: "read", method: "GET", path: machine, body: "" },
        { what: "list", method: "GET", path: "/v1/machines", body: "" },
      ]),
  );
  return { neighbours, urls, order: await tenant("flooder", RATE), emptyUrl };
}

/** The measured tenant calls both servers at the same time. */
const measure = async ({ neighbours }: Field, latencies: Latencies, forMs: number): Promise<void> => {
  await Promise.all(neighbours.map((neighbour) => neighbour.call(forMs, latencies)));
};

async function flooded(
  field: Field,
  urls: readonly string[],
  { latencies, counts }: { readonly latencies: Latencies; readonly counts: Record<string, number> },
): Promise<void> {
  const floods = await Promise.all(urls.map((url) => startFlood({ ...field.order, url, floods: ["requests"] })));
  try {
    for (const flood of floods) flood.begin();
    await sleep(BEGIN_MS);
    await measure(field, latencies, PERIOD_MS);
    for (const flood of floods)
      for (const [outcome, count] of Object.entries(await flood.end()))
        counts[outcome] = (counts[outcome] ?? 0) + count;
  } finally {
    for (const flood of floods) await flood[Symbol.asyncDispose]();
  }
  await sleep(SETTLE_MS);
}

const allOf = (latencies: Latencies): Summary => summarize([...latencies.values()].flat());

function findingOf(
  found: Readonly<Record<"quiet" | "flooded" | "control", Latencies>>,
  counts: Readonly<Record<string, number>>,
  n: number,
): Finding {
  const [flood, quiet, control] = [allOf(found.flooded), allOf(found.quiet), allOf(found.control)];
  const answers = Object.entries(counts).map(([outcome, count]) => `${count} × ${outcome}`);
  const each = [...found.flooded].map(([what, ms]) => {
    const before = summarize(found.quiet.get(what) ?? []);
    return `${what} ${before.p99Ms.toFixed(1)} to ${summarize(ms).p99Ms.toFixed(1)} ms`;
  });
  return {
    name: "rate-limited-flood",
    series: [
      { what: "flooded", summary: flood },
      { what: "quiet", summary: quiet },
      { what: "flood of an empty server", summary: control },
    ],
    reaches: [
      atMost("p99, times the quiet one", flood.p99Ms / quiet.p99Ms, RATIO_MAX, ""),
      atMost("p99, times that with the empty server flooded", flood.p99Ms / control.p99Ms, RATIO_MAX, ""),
    ],
    setting: {
      turns: n,
      servers: 2,
      "seconds a period": PERIOD_MS / 1000,
      "calls a second allowed": RATE.rateRequestsPerSecond,
    },
    notes: [`answers to the flood: ${answers.join(", ")}`, `p99 quiet to flooded: ${each.join(", ")}`],
  };
}

/**
 * How much a flooding tenant affects another one: request bodies, streams, handshakes, image pulls, its machine's
 * pages, and all of them together.
 *
 * Each kind begins with a flooded period that is not part of the result, and is reported by itself: the server compiles its
 * code for that kind of call then, as it does once in its life. After it each kind alternates between a quiet period, a
 * flooded one, and two controls, because processors are shared here. In the first the same flood goes to an empty server
 * that has nothing to do with ours: what the flooder uses of the processors is not the server's fault. In the second, other
 * programs use as much of them as the flood made the server, the node agent and the flooder use, at the same priorities:
 * what is slower than that is not the wait for a processor. The flooder has the default plan; the measured tenant has no
 * rate limit. The fake driver is used, so that no machine's own time is included: images are pulled without being built.
 * In few alternations one pause of 0.1 s decides the p99: it delays 25 of the 500 calls of a period.
 */
import { Flotilla } from "@flotilla/sdk/client";
import { startBusy } from "./support/busy-process.ts";
import { startEmptyHttp } from "./support/empty-http.ts";
import { FLOOD_NAMES, type FloodCount, type FloodName, type FloodOrder } from "./support/flood-calls.ts";
import { startFlood } from "./support/flood-process.ts";
import { BenchFlotilla, IMAGE } from "./support/flotilla.ts";
import { giveLeftovers, processorMs } from "./support/host.ts";
import { Neighbour, type Latencies } from "./support/neighbour.ts";
import type { Finding, Series } from "./support/report.ts";
import { sleep, timed } from "./support/clock.ts";
import { atMost, type Summary, summarize } from "./support/statistics.ts";

const STRETCH_MS = 2_000;
const WARM_UP_MS = 3_000;
/** A flood has full effect when measuring begins, and leaves commands and connections behind when it ends. */
const BEGIN_MS = 300;
const SETTLE_MS = 500;
const RATIO_MAX = 2;
const MANY = 1_000_000;
/** All scopes except an operator's. */
const SCOPES_OF_STRANGER = ["machine:read", "machine:create", "machine:delete", "machine:exec", "machine:files"];

type Kind = readonly [string, readonly FloodName[]];
const KINDS: readonly Kind[] = [...FLOOD_NAMES.map((name): Kind => [name, [name]]), ["all together", FLOOD_NAMES]];
/** What `--floods` may name. */
export const KIND_NAMES: readonly string[] = KINDS.map(([name]) => name);

/** Makes n alternations of each kind, or of those that are named (KIND_NAMES). */
export async function noisyNeighbour(n: number, names: readonly string[] | null = null): Promise<Finding> {
  const kinds = KINDS.filter(([name]) => names === null || names.includes(name));
  await using flotilla = await BenchFlotilla.start({ driver: "fake" });
  await using empty = await startEmptyHttp();
  await using guest = await startEmptyHttp();
  for (const { pid } of [empty, guest]) await giveLeftovers(pid);
  const field = await prepare(flotilla, { emptyUrl: empty.url, guestUrl: guest.url });
  try {
    const all: Found[] = [];
    for (const kind of kinds) all.push(await measure(field, kind, n));
    return {
      name: "noisy-neighbour",
      series: all.flatMap(seriesOf),
      reaches: all.map(({ name, quiet, flooded }) =>
        atMost(`${name}, times the quiet p99`, p99(flooded) / p99(quiet), RATIO_MAX, ""),
      ),
      setting: { turns: n, "seconds a period": STRETCH_MS / 1000, calls: "exec, read and list in turns" },
      notes: all.flatMap(notesOf),
    };
  } finally {
    field.neighbour.close();
  }
}

/** Two tenants on one Flotilla, and an empty server beside it. */
interface Field {
  readonly neighbour: Neighbour;
  readonly order: Omit<FloodOrder, "floods">;
  readonly emptyUrl: string;
  readonly pids: { readonly server: number; readonly node: number };
}

async function prepare(
  flotilla: BenchFlotilla,
  { emptyUrl, guestUrl }: { readonly emptyUrl: string; readonly guestUrl: string },
): Promise<Field> {
  const { url, headers } = flotilla.access;
  const { client } = flotilla;
  const plan = await client.createPlan({ name: "measured", rateRequestsPerSecond: MANY, rateBurst: MANY });
  const { tenantId } = await client.getCaller();
  await client.updateTenant(tenantId, { planId: plan.id });
  const { machine } = await flotilla.make();
  const stranger = await client.createTenant({ name: "stranger" });
  const { key } = await client.createApiKey({ tenantId: stranger.id, scopes: SCOPES_OF_STRANGER });
  const theirs = new Flotilla({ url, apiKey: key, retries: 0 });
  const page = await theirs.createMachine({
    source: { type: "image", reference: IMAGE },
    public: true,
    ports: [{ port: 80 }],
    env: { FAKE_PORTS: `80=${new URL(guestUrl).port}` },
  });
  await theirs.startMachine(page.id);
  const neighbour = new Neighbour(url, headers, [
    { what: "exec", method: "POST", path: `/v1/machines/${machine.id}/exec`, body: '{"command":["true"]}' },
    { what: "read", method: "GET", path: `/v1/machines/${machine.id}`, body: "" },
    { what: "list", method: "GET", path: "/v1/machines", body: "" },
  ]);
  await neighbour.call(WARM_UP_MS, new Map());
  const pids = { server: await flotilla.pidOf("server"), node: await flotilla.pidOf("node") };
  return { neighbour, order: { url, key, machineId: page.id }, emptyUrl, pids };
}

/** The measurements for one kind of flood. */
interface Found {
  readonly name: string;
  readonly quiet: Latencies;
  readonly flooded: Latencies;
  /** The first flooded period, which is not part of the others: code is compiled in it. */
  readonly first: Latencies;
  /** p99 of each of the other flooded periods, in milliseconds. */
  readonly periods: number[];
  readonly control: Latencies;
  /** While other programs use the processors as much. */
  readonly busy: Latencies;
  readonly counts: Map<string, number>;
  /** Shares of a processor in the flooded periods. */
  readonly used: { server: number; node: number; flooder: number };
}

async function measure(field: Field, [name, floods]: Kind, n: number): Promise<Found> {
  const found: Found = {
    name,
    quiet: new Map(),
    flooded: new Map(),
    first: new Map(),
    periods: [],
    control: new Map(),
    busy: new Map(),
    counts: new Map(),
    used: { server: 0, node: 0, flooder: 0 },
  };
  await underFlood(field, floods, { flooded: found.first, counts: new Map() });
  await sleep(SETTLE_MS);
  for (let turn = 0; turn < n; turn++) {
    const without = await watched(field, 0, found.quiet);
    const flooded: Latencies = new Map();
    const used = await underFlood(field, floods, { flooded, counts: found.counts });
    found.periods.push(p99(flooded));
    for (const [what, latencies] of flooded)
      found.flooded.set(what, [...(found.flooded.get(what) ?? []), ...latencies]);
    for (const program of PROGRAMS) found.used[program] += used[program] / n;
    await sleep(SETTLE_MS);
    {
      await using flood = await startFlood({ ...field.order, url: field.emptyUrl, floods });
      flood.begin();
      await sleep(BEGIN_MS);
      await field.neighbour.call(STRETCH_MS, found.control);
      await flood.end();
    }
    await sleep(SETTLE_MS);
    await besideBusy(field, used, without, found.busy);
    await sleep(SETTLE_MS);
  }
  return found;
}

/** One flooded period. */
async function underFlood(
  field: Field,
  floods: readonly FloodName[],
  { flooded, counts }: Pick<Found, "flooded" | "counts">,
): Promise<ByProgram> {
  await using flood = await startFlood({ ...field.order, floods });
  flood.begin();
  await sleep(BEGIN_MS);
  const used = await watched(field, flood.pid, flooded);
  addTo(counts, await flood.end());
  return used;
}

/** Calls for one period; returns what share of a processor each program used. `flooder` 0: there is none. */
async function watched({ neighbour, pids }: Field, flooder: number, latencies: Latencies): Promise<ByProgram> {
  const before = await processorMsOf({ ...pids, flooder });
  const tookMs = await timed(() => neighbour.call(STRETCH_MS, latencies));
  const after = await processorMsOf({ ...pids, flooder });
  const share = (program: keyof ByProgram): number => (after[program] - before[program]) / tookMs;
  return { server: share("server"), node: share("node"), flooder: share("flooder") };
}

/** One period in which others use what the flood added. */
async function besideBusy({ neighbour }: Field, used: ByProgram, without: ByProgram, busy: Latencies): Promise<void> {
  await using _server = startBusy(used.server - without.server);
  await using _node = startBusy(used.node - without.node);
  await using flooder = startBusy(used.flooder);
  await giveLeftovers(flooder.pid);
  await sleep(BEGIN_MS);
  await neighbour.call(STRETCH_MS, busy);
}

const PROGRAMS = ["server", "node", "flooder"] as const;
type ByProgram = Record<(typeof PROGRAMS)[number], number>;

async function processorMsOf(pids: Readonly<ByProgram>): Promise<ByProgram> {
  const of = (pid: number): Promise<number> => (pid === 0 ? Promise.resolve(0) : processorMs(pid));
  const [server, node, flooder] = await Promise.all([pids.server, pids.node, pids.flooder].map(of));
  return { server: server ?? 0, node: node ?? 0, flooder: flooder ?? 0 };
}

function addTo(counts: Map<string, number>, more: FloodCount): void {
  for (const [outcome, count] of Object.entries(more)) counts.set(outcome, (counts.get(outcome) ?? 0) + count);
}

const allOf = (latencies: Latencies): Summary => summarize([...latencies.values()].flat());
const p99 = (latencies: Latencies): number => allOf(latencies).p99Ms;

function seriesOf({ name, quiet, flooded, control, busy }: Found): readonly Series[] {
  return [
    { what: `${name}: flooded`, summary: allOf(flooded) },
    { what: `${name}: quiet`, summary: allOf(quiet) },
    { what: `${name}: flood of an empty server`, summary: allOf(control) },
    { what: `${name}: as much use of the processors by others`, summary: allOf(busy) },
  ];
}

function notesOf({ name, quiet, flooded, first, periods, control, busy, counts, used }: Found): readonly string[] {
  const each = [...flooded].map(([what, ms]) => {
    const [under, without] = [summarize(ms), summarize(quiet.get(what) ?? [])];
    return `${what} ${without.p99Ms.toFixed(1)} to ${under.p99Ms.toFixed(1)} ms`;
  });
  const answered = [...counts].map(([outcome, count]) => `${count} × ${outcome}`).join(", ");
  const times = (latencies: Latencies): string => (p99(latencies) / p99(quiet)).toFixed(2);
  const share = (part: number): string => `${Math.round(part * 100)} %`;
  const each99 = periods.map((ms) => ms.toFixed(1)).join(", ");
  return [
    `${name}: flooded p99 of the first period ${p99(first).toFixed(1)} ms, of each of the others ${each99} ms`,
    `${name}: p99 quiet to flooded: ${each.join(", ")}; with the empty server flooded ${times(control)} times the quiet p99, with others as busy ${times(busy)} times; flooded ${(p99(flooded) / p99(busy)).toFixed(2)} times the latter`,
    `${name}: answers ${answered}; of a processor the server used ${share(used.server)}, the node agent ${share(used.node)}, the flooder ${share(used.flooder)}`,
  ];
}

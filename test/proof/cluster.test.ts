/**
 * A fleet that must stay up, proven on one host: two servers, a primary PostgreSQL with a synchronous
 * standby, and three nodes with real machines, each in its own network namespace. Each cable is pulled, and
 * each process killed and stopped, in turn (faults.ts), while clients create, use, move and delete machines
 * through both servers (load.ts).
 *
 * After each fault everything heals within HEAL_MS without a person's help. Then:
 * - every acknowledged line is in its machine, once;
 * - seen from outside, each machine runs once, on the node that both servers name, and no other VMM and no
 *   other disk is there;
 * - no operation runs; every node is ready; the standby streams;
 * - no call hung, none was answered with 500, and each refusal has a reason.
 * At every moment no machine ran twice and no node ran more machines than its ceiling. At the end the audit
 * log and final invoices verify, and nothing is left of the machines.
 *
 *     FLOTILLA_PROOF_FAULTS='node-1|primary' npm test -- proof      # only the faults whose names match
 */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { runCli } from "../../cli/test/run-cli.ts";
import { enterWorld, namespacesSkipReason } from "../support/namespaces.ts";
import { monotonic, pause, until } from "../support/until.ts";
import { Calls } from "./calls.ts";
import { type Cluster, startCluster } from "./cluster.ts";
import { FAULTS, type Fault } from "./faults.ts";
import { Load } from "./load.ts";
import { assertHealed, Watch } from "./outside.ts";

if (namespacesSkipReason === false) enterWorld(import.meta.filename);

const LASTING_MACHINES = 3;
/** Without load; until.ts grants a busy host up to eight times as much. */
const HEAL_MS = 45_000;
const CHOSEN = new RegExp(process.env["FLOTILLA_PROOF_FAULTS"] ?? "");
const MONTH_MS = 32 * 24 * 3_600_000;

interface Row {
  readonly fault: string;
  readonly healedMs: number | null;
  readonly refused: string;
  readonly hung: number;
}

describe("a cluster of real machines", { skip: namespacesSkipReason }, () => {
  const endings: (() => Promise<unknown> | void)[] = [];
  const rows: Row[] = [];
  let cluster: Cluster;
  let watch: Watch | undefined;
  let calls: Calls;
  let load: Load;
  let tenantId: string;
  let owner: string;

  before(async () => {
    cluster = await startCluster({ after: (ending) => void endings.push(ending as () => Promise<unknown>) });
    const client = cluster.flotilla.client();
    tenantId = (await client.post("/v1/tenants", { name: "proof", testClock: true })).json.id;
    owner = (await client.post("/v1/apikeys", { tenantId })).json.key;
    watch = new Watch(cluster);
    calls = new Calls(() => cluster.clients());
    load = new Load(calls, { owner: { authorization: `Bearer ${owner}` } });
    await load.prepare(LASTING_MACHINES);
  });
  after(async () => {
    watch?.[Symbol.dispose]();
    if (rows.length > 0) print(rows);
    for (const end of endings.toReversed()) await Promise.resolve(end()).catch(() => undefined);
  });

  const healed = async (): Promise<void> => {
    await load.settle();
    const isHealed = async (): Promise<true> => {
      await assertHealed(cluster, load, owner);
      return true;
    };
    await until(isHealed, { what: "the cluster to heal", deadlineMs: HEAL_MS, everyMs: 250 });
  };
  const suffer = async (fault: Fault): Promise<void> => {
    calls.reset();
    watch?.takeFaults();
    await load.begin();
    await fault.begin(cluster);
    try {
      await pause(fault.lastsMs);
    } finally {
      await fault.end?.(cluster);
    }
    const endedAt = monotonic();
    let healedMs: number | null = null;
    try {
      await healed();
      healedMs = monotonic() - endedAt;
    } catch (error) {
      await load.clear().catch(() => undefined);
      throw error;
    } finally {
      const refused = [...calls.refused].map(([status, count]) => `${count} x ${status}`).join(", ");
      rows.push({ fault: fault.name, healedMs, refused, hung: calls.hung });
    }
    await load.verify();
    assert.deepEqual(calls.faults.splice(0), [], "answers that no client should get");
    assert.deepEqual(watch?.takeFaults(), [], "seen from outside");
  };

  for (const fault of FAULTS.filter(({ name }) => CHOSEN.test(name)))
    test(`it heals by itself and has lost nothing: ${fault.name}`, () => suffer(fault));

  test("the audit log and the invoices verify, and nothing is left of deleted machines", async (t) => {
    assert.ok((watch?.looks ?? 0) > 0, "machines were seen to execute");
    const client = cluster.flotilla.client();
    const written = load.lasting.flatMap(({ acknowledged }) => acknowledged).length;
    for (const { id } of load.lasting.splice(0))
      assert.equal((await client.withKey(owner).delete(`/v1/machines/${id}`)).status, 204);
    const isHealed = async (): Promise<true> => {
      await assertHealed(cluster, load, owner);
      return true;
    };
    await until(isHealed, { what: "the machines to be gone", deadlineMs: HEAL_MS, everyMs: 250 });
    const to = new Date(Date.now() + MONTH_MS).toISOString();
    const moved = await client.post(`/v1/tenants/${tenantId}/clock`, { to });
    assert.equal(moved.status, 200, moved.text);
    const isFinal = async (): Promise<boolean> => {
      const { json } = await client.withKey(owner).get("/v1/billing/invoices");
      return (json as { status: string }[]).some(({ status }) => status === "finalized");
    };
    await until(isFinal, { what: "a final invoice", deadlineMs: HEAL_MS, everyMs: 250 });
    const environment = { FLOTILLA_URL: client.url, FLOTILLA_API_KEY: client.key ?? "" };
    for (const argv of [
      ["audit", "verify", "--all"],
      ["billing", "verify"],
    ]) {
      const verified = await runCli(t, argv, { environment });
      assert.equal(verified.code, 0, `${verified.output}${verified.errors}`);
      process.stdout.write(`${argv.join(" ")}: ${verified.output}`);
    }
    const { moves, drains, succeeded, failed } = load.operations;
    process.stdout.write(
      `${written} acknowledged lines, ${load.cycles} machines that came and went, ${moves} moves and ${drains} drains ` +
        `(${succeeded} succeeded, ${failed} failed), ${watch?.looks} looks\n`,
    );
  });

  function print(all: readonly Row[]): void {
    const width = Math.max(...all.map(({ fault }) => fault.length));
    const lines = all.map(
      ({ fault, healedMs, refused, hung }) =>
        `${fault.padEnd(width)}  ${healedMs === null ? "never" : `${(healedMs / 1000).toFixed(1)} s`.padStart(7)}  ${hung} hung  ${refused}`,
    );
    process.stdout.write(`${lines.join("\n")}\n`);
  }
});

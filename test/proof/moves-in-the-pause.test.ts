/**
 * Faults in the pause of a real machine that moves while it runs: its agents and the server that moves it are
 * killed, and the move is canceled, between the source's record of the pause and the end of the move.
 *
 * Afterwards the machine runs in one place, in the same boot, with all that was in its memory. Its runs do
 * not overlap, and they are as long as its guest's clock says, which does not run while the guest is paused.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import pg from "pg";
import { sharedDatabaseUrl } from "../support/database.ts";
import { type Flotilla, startFlotilla } from "../support/flotilla.ts";
import { vmmsOf } from "../support/node-on-host.ts";
import { type EndedMove, endedMove, LIVE, requestMove, restoredMachine } from "../support/real-moves.ts";
import { until } from "../support/until.ts";
import { skipReason } from "../vm/vm-fixture.ts";

const LONG = { deadlineMs: 120_000, everyMs: 50 };
/** The pause is short. */
const WATCH = { deadlineMs: 120_000, everyMs: 1 };
const PIECES = 6;
/** How long the next agent may take to find the machine. */
const AGENT_AWAY_MS = 60_000;
/** How far two readings of clocks on a busy host may differ. */
const CLOCKS_DIFFER_MS = 2_500;

const FILL = `cd /dev/shm && for i in $(seq ${PIECES}); do head -c 4000000 /dev/urandom >kept$i; sha256sum kept$i >>sums; done`;
/** Memory that is different all the time, so that there is something left for the pause. */
const WRITER =
  "(n=0; while :; do n=$((n+1)); head -c 2000000 /dev/urandom >/dev/shm/next; mv /dev/shm/next /dev/shm/latest; " +
  "echo $n >/dev/shm/rounds; done) >/dev/null 2>&1 &";
const BOOT = "cat /proc/sys/kernel/random/boot_id";
const CHECK = `cd /dev/shm && sha256sum -c sums | grep -c OK; ${BOOT}; cat rounds`;

interface RunOfMachine {
  readonly nodeId: string;
  readonly startedAt: number;
  readonly endedAt: number | null;
}

interface Journaled {
  readonly boot?: { readonly isPaused?: boolean } | null;
}

// Before the hooks: it ends after the tests of the file.
const databaseUrl = skipReason === false ? await sharedDatabaseUrl() : "";

describe("a fault in the pause of a machine that moves while it runs", { skip: skipReason }, () => {
  let flotilla: Flotilla;
  let database: pg.Client;
  let id: string;
  let boot: string;

  before(async () => {
    flotilla = await startFlotilla({ servers: 2, nodes: 2, driver: "qemu", databaseUrl });
    database = new pg.Client({ connectionString: databaseUrl });
    await database.connect();
    id = await restoredMachine(flotilla);
    await flotilla.exec(id, FILL);
    boot = await flotilla.exec(id, BOOT);
    await flotilla.exec(id, WRITER);
    const hasBegun = async () => (await flotilla.exec(id, "ls /dev/shm")).includes("rounds");
    await until(hasBegun, { what: "the writer to begin", ...LONG });
  });
  after(async () => {
    await database?.end();
    await flotilla?.[Symbol.asyncDispose]();
  });

  const place = async (): Promise<number> => Number(((await flotilla.get(id)).nodeId ?? "").slice("node-".length));
  const journalOf = (node: number): Journaled | null => {
    try {
      return JSON.parse(readFileSync(join(flotilla.nodeDirectory(node), "machines", id, "journal.json"), "utf8"));
    } catch {
      return null;
    }
  };
  /** The journal of a node says that it has the machine, paused. */
  const pausedOn = (node: number): Promise<unknown> =>
    until(() => journalOf(node)?.boot?.isPaused === true, {
      what: `the machine to be paused on node ${node}`,
      ...WATCH,
    });

  /** How long the guest's clock has run, and when that was read: milliseconds. */
  async function guestTime(): Promise<{ readonly ranMs: number; readonly at: number }> {
    const at = Date.now();
    const ranMs = Number((await flotilla.exec(id, "cat /proc/uptime")).split(" ")[0]) * 1000;
    return { ranMs, at: (at + Date.now()) / 2 };
  }

  async function runs(): Promise<readonly RunOfMachine[]> {
    const { rows } = await database.query<RunOfMachine>(
      `SELECT node_id AS "nodeId", extract(epoch FROM started_at)::float8 * 1000 AS "startedAt",
        extract(epoch FROM coalesce(ended_at, left_at))::float8 * 1000 AS "endedAt"
      FROM machine_runs WHERE machine_id = $1 ORDER BY started_at`,
      [id],
    );
    return rows;
  }

  const billed = (all: readonly RunOfMachine[], from: number, to: number): number =>
    all.reduce(
      (sum, { startedAt, endedAt }) => sum + Math.max(0, Math.min(endedAt ?? to, to) - Math.max(startedAt, from)),
      0,
    );

  /** Moves the machine, with `fault` in the pause, and looks at what is left when the move has ended. */
  async function withFault(
    fault: (parts: { readonly from: number; readonly to: number; readonly operation: string }) => Promise<void>,
    { awayMs = 0 }: { readonly awayMs?: number } = {},
  ): Promise<{ readonly done: EndedMove; readonly from: number; readonly to: number }> {
    const from = await place();
    const to = 1 - from;
    const first = await guestTime();
    const rounds = Number(await flotilla.exec(id, "cat /dev/shm/rounds"));
    const operation = await requestMove(flotilla, id, `node-${to}`, 1);
    await fault({ from, to, operation });
    const done = await endedMove(flotilla, operation);
    const [kept, sameBoot, written] = (await flotilla.exec(id, CHECK)).trim().split("\n");
    assert.deepEqual([kept, `${sameBoot}\n`], [`${PIECES}`, boot], JSON.stringify(done));
    await until(async () => Number(await flotilla.exec(id, "cat /dev/shm/rounds")) > Number(written), {
      what: "its writer to continue",
      ...LONG,
    });
    assert.ok(Number(written) >= rounds);
    const holders = (): readonly number[] =>
      [0, 1].flatMap((node) =>
        vmmsOf(flotilla.nodeDirectory(node)).flatMap(({ machines }) => (machines.includes(id) ? [node] : [])),
      );
    const here = await place();
    await until(() => holders().join() === `${here}`, {
      what: `one VM, on node ${here}: ${holders().join()}`,
      ...LONG,
    });
    const last = await guestTime();
    // A source that was killed reports the end of its run when it is back.
    const all = await until(
      async () => {
        const found = await runs();
        return found.filter(({ endedAt }) => endedAt === null).length === 1 && found;
      },
      { what: "one open run", ...LONG },
    );
    for (const [index, { startedAt }] of all.entries())
      assert.ok((all[index - 1]?.endedAt ?? 0) <= startedAt, `runs overlap: ${JSON.stringify(all)}`);
    assert.equal(all.at(-1)?.nodeId, `node-${here}`);
    const counted = billed(all, first.at, last.at);
    const ran = last.ranMs - first.ranMs;
    const report = `${done.status}: ${done.steps[1]?.message}; ${done.steps[4]?.message}; its guest ran ${ran.toFixed(0)} ms, its runs are ${counted.toFixed(0)} ms of ${(last.at - first.at).toFixed(0)}`;
    process.stdout.write(`${report}\n`);
    assert.ok(counted - ran < CLOCKS_DIFFER_MS && ran - counted < CLOCKS_DIFFER_MS + awayMs, report);
    return { done, from, to };
  }

  /** One of them moves the machine. */
  async function restartServers(): Promise<void> {
    await Promise.all(flotilla.servers.map((server) => server.kill()));
    await Promise.all([0, 1].map((server) => flotilla.startServer(server)));
  }

  const succeeds = async (...parts: Parameters<typeof withFault>): Promise<void> => {
    const { done, to } = await withFault(...parts);
    assert.equal(done.status, "succeeded", `${done.error} ${JSON.stringify(done.steps)}`);
    assert.equal(await place(), to);
  };

  test("none: it is handed over", async () => {
    const { done } = await withFault(() => Promise.resolve());
    assert.equal(done.steps[1]?.message, LIVE, JSON.stringify(done));
  });

  test("the target's agent is killed before the rest has arrived", () =>
    succeeds(async ({ from, to }) => {
      await pausedOn(from);
      await flotilla.nodes[to]?.kill();
      await flotilla.startNode(to);
    }));

  test("the target's agent is killed when it has the machine", () =>
    succeeds(async ({ to }) => {
      await pausedOn(to);
      await flotilla.nodes[to]?.kill();
      await flotilla.startNode(to);
    }));

  test("the source's agent is killed", () =>
    succeeds(
      async ({ from }) => {
        await pausedOn(from);
        await flotilla.nodes[from]?.kill();
        await flotilla.startNode(from);
        // Killed before it paused the guest, which then runs until the next agent does: that time is not
        // counted.
      },
      { awayMs: AGENT_AWAY_MS },
    ));

  test("the server is killed", () =>
    succeeds(async ({ from }) => {
      await pausedOn(from);
      await restartServers();
    }));

  test("the server is killed when the target has the machine", () =>
    succeeds(async ({ to }) => {
      await pausedOn(to);
      await restartServers();
    }));

  test("the move is canceled", async () => {
    const { done, from } = await withFault(async ({ from: source, to, operation }) => {
      await pausedOn(source);
      // The rest does not arrive.
      flotilla.nodes[to]?.signal("SIGSTOP");
      try {
        const canceled = await flotilla.client(1).post(`/v1/operations/${operation}/cancel`);
        assert.equal(canceled.status, 202, canceled.text);
        await until(() => flotilla.exec(id, "true"), { what: "the machine to continue", ...LONG });
      } finally {
        flotilla.nodes[to]?.signal("SIGCONT");
      }
    });
    assert.equal(done.status, "canceled", JSON.stringify(done));
    assert.equal(await place(), from);
  });
});

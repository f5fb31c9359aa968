/**
 * Real machines whose node is cut off from the servers: the VMM of one that waits in a pool ends in time
 * whatever its agent does, an ordinary and a claimed one run on, and all are right when the node is back.
 */
import assert from "node:assert/strict";
import { realpathSync } from "node:fs";
import { after, before, describe } from "node:test";
import { DrawnTests } from "../support/drawn.ts";
import { type Flotilla, startFlotilla } from "../support/flotilla.ts";
import { until } from "../support/until.ts";
import { LifetimeObserver, type VmmLifetime } from "../support/vmm-lifetimes.ts";
import { skipReason } from "./vm-fixture.ts";

const LONG = { deadlineMs: 120_000, everyMs: 100 };
/** What is promised: the fence is a second shorter. */
const ENDED_MS_MAX = 22_000;
const CAUSES_PER_RUN = 1;

describe("a node that is cut off", { skip: skipReason }, () => {
  let flotilla: Flotilla;
  let observer: LifetimeObserver;
  let pool: string;
  let ordinary: string;
  let claimed: string;

  before(async () => {
    flotilla = await startFlotilla({ driver: "qemu" });
    observer = new LifetimeObserver(realpathSync(flotilla.nodeDirectory()));
    ({ id: ordinary } = await flotilla.create());
    await flotilla.start(ordinary);
    const made = await flotilla.client().post("/v1/pools", { image: "local/busybox", cpus: 1, memoryMb: 128 });
    pool = made.json.id as string;
    await until(async () => (await waiting()).length === 1, { what: "a machine to wait", ...LONG });
    claimed = (await flotilla.client().post(`/v1/pools/${pool}/claim`)).json.id as string;
    for (const id of [ordinary, claimed])
      await flotilla.exec(id, "echo here >/tmp/boot; echo here >/workspace/disk; sync");
  });
  after(async () => {
    observer?.[Symbol.dispose]();
    await flotilla?.[Symbol.asyncDispose]();
  });

  /** Machines of the pool that run and were not claimed. */
  const waiting = async (): Promise<readonly string[]> => {
    const listed = await flotilla.client().get(`/v1/machines?label=flotilla-pool=${pool}`);
    const machines = listed.json as { id: string; ready: boolean; state: string }[];
    return machines.filter(({ id, ready }) => ready && id !== claimed).map(({ id }) => id);
  };
  const running = (id: string): VmmLifetime | undefined =>
    [...observer.vmms.values()].find(({ machineId, endedAt }) => machineId === id && endedAt === null);
  const lastHeartbeatAt = async (): Promise<number> =>
    Date.parse(
      ((await flotilla.client().get("/v1/nodes")).json as { lastHeartbeatAt: string }[])[0]?.lastHeartbeatAt ?? "",
    );

  /** Cuts the node off until the fenced VMM has ended, and checks what ran and what runs afterwards. */
  async function cutOff(cut: () => Promise<void> | void, restore: () => Promise<void> | void): Promise<void> {
    const fenced = await until(async () => running((await waiting())[0] ?? ""), { what: "a machine to wait", ...LONG });
    const others = [ordinary, claimed].map(running);
    // What is acknowledged later was sent later, so this is the earliest end of the fence.
    const acknowledgedAt = await lastHeartbeatAt();
    await cut();
    const cutAt = Date.now();
    await until(() => fenced.endedAt !== null, { what: "the fenced VMM to end", deadlineMs: 40_000 });
    const endedAt = fenced.endedAt ?? 0;
    assert.ok(endedAt - cutAt <= ENDED_MS_MAX + observer.gapMs, `it ended ${endedAt - cutAt} ms after the cut`);
    assert.ok(endedAt - acknowledgedAt >= 18_000, `it ended ${endedAt - acknowledgedAt} ms after a heartbeat`);
    for (const other of others) assert.equal(other?.endedAt, null, "a machine without a fence has ended");
    await restore();
    const next = await until(
      async () => {
        const [pooled] = (await flotilla.client().get("/v1/pools")).json as { idleCount: number }[];
        const vmm = running((await waiting())[0] ?? "");
        return pooled?.idleCount === 1 && vmm?.bootId !== fenced.bootId ? vmm : undefined;
      },
      { what: "a machine to wait again", ...LONG },
    );
    assert.equal(next.machineId, fenced.machineId, "nothing is replaced of the only node");
    for (const id of [ordinary, claimed])
      assert.equal(await flotilla.exec(id, "cat /tmp/boot /workspace/disk"), "here\nhere\n");
    assert.deepEqual([ordinary, claimed].map(running), others);
    const alive = [...observer.vmms.values()].filter((vmm) => vmm.endedAt === null && vmm.machineId !== null);
    assert.equal(new Set(alive.map(({ machineId }) => machineId)).size, alive.length, "a machine runs twice");
    process.stdout.write(
      `# ended ${endedAt - cutAt} ms after the cut, ${endedAt - acknowledgedAt} ms after a heartbeat\n`,
    );
  }

  const causes = new DrawnTests();

  causes.test("because its agent is stopped", async () => {
    await cutOff(
      () => flotilla.nodes[0]?.signal("SIGSTOP"),
      () => flotilla.nodes[0]?.signal("SIGCONT"),
    );
  });

  causes.test("because its agent is killed", async () => {
    await cutOff(
      () => flotilla.nodes[0]?.kill(),
      () => flotilla.startNode(),
    );
  });

  causes.test("because no server answers", async () => {
    await cutOff(
      () => flotilla.servers[0]?.signal("SIGSTOP"),
      () => flotilla.servers[0]?.signal("SIGCONT"),
    );
  });
  causes.run(CAUSES_PER_RUN);
});

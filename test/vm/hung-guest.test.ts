/**
 * Real machines whose guest hangs: one whose agent is frozen and continues, one whose VMM is stopped and that
 * is started, and one that is only busy, at the same time, on a host that has not enough processors for them.
 */
import assert from "node:assert/strict";
import { realpathSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { type Flotilla, startFlotilla } from "../support/flotilla.ts";
import { vmmsOf } from "../support/node-on-host.ts";
import { until } from "../support/until.ts";
import { skipReason } from "./vm-fixture.ts";

/** docs/workloads.md promises a minute, and four times that on a host that is busy. */
const SHOWN_MS_MAX = 60_000;
/** Long enough for a host that is busy, and not so long that the machine is restarted. */
const FROZEN_S = 170;
const BUSY_S = 100;
/** The agent is the guest's first process, which no signal from within the guest stops. */
const FREEZE = `cd /sys/fs/cgroup && mkdir ice && sleep 2 && echo 1 >ice/cgroup.procs && echo 1 >ice/cgroup.freeze &&
  sleep ${FROZEN_S} && echo 0 >ice/cgroup.freeze`;
const REASON = /the machine's agent has not answered since \S+; a start restarts the machine/;

interface Shown {
  readonly state: string;
  readonly ready: boolean;
  readonly readyAt: string | null;
  readonly unresponsiveSince: string | null;
}

describe("a guest that hangs", { skip: skipReason, concurrency: true }, () => {
  let flotilla: Flotilla;

  before(async () => {
    flotilla = await startFlotilla({ driver: "qemu" });
  });
  after(() => flotilla?.[Symbol.asyncDispose]());

  const machine = async (): Promise<string> => {
    const { id } = await flotilla.create();
    await flotilla.start(id);
    return id;
  };
  const read = async (id: string): Promise<Shown> => (await flotilla.client().get(`/v1/machines/${id}`)).json as Shown;
  const exec = (id: string, body: object) => flotilla.client().post(`/v1/machines/${id}/exec`, body);
  const typesOf = async (id: string): Promise<readonly string[]> =>
    ((await flotilla.client().get(`/v1/machines/${id}/events`)).json as { type: string }[]).map(({ type }) => type);

  /** Resolves with how the machine is shown when its silence is. A command that waits for it has ended then. */
  async function silent(id: string, hang: () => Promise<unknown>): Promise<Shown> {
    const waiting = exec(id, { command: "sleep 1000" });
    await until(() => flotilla.exec(id, "ps -o args | grep '[s]leep 1000'"), { what: "the command to run" });
    await hang();
    const isShown = async (): Promise<Shown | undefined> => {
      const shown = await read(id);
      return shown.ready ? undefined : shown;
    };
    const shown = await until(isShown, { what: "the silence", deadlineMs: 2 * SHOWN_MS_MAX, everyMs: 200 });
    assert.deepEqual([shown.state, shown.readyAt, shown.unresponsiveSince !== null], ["started", null, true]);
    const ended = await waiting;
    assert.match(`${ended.status} ${ended.headers.get("x-error-code")} ${ended.text}`, /^502 guest_unreachable /);
    assert.match(ended.text, REASON);
    const refused = await exec(id, { command: "true" });
    assert.match(`${refused.status} ${refused.text}`, REASON);
    const { status, text } = await flotilla.client().get(`/v1/machines/${id}/files?path=/etc/hostname`);
    assert.match(`${status} ${text}`, REASON);
    assert.equal((await typesOf(id)).filter((type) => type === "machine.unresponsive").length, 1);
    return shown;
  }

  test("whose agent is frozen says so, and says so when it answers again", async () => {
    const id = await machine();
    await flotilla.exec(id, "echo kept >/tmp/memory");
    await silent(id, () => exec(id, { command: FREEZE, background: true }));
    const isBack = async (): Promise<boolean> => (await read(id)).ready;
    await until(isBack, { what: "its agent to answer", deadlineMs: 2 * FROZEN_S * 1000, everyMs: 200 });
    assert.equal((await read(id)).unresponsiveSince, null);
    assert.equal(await flotilla.exec(id, "cat /tmp/memory"), "kept\n");
    assert.equal((await typesOf(id)).filter((type) => type === "machine.responsive").length, 1);
    await until(async () => (await flotilla.exec(id, "ps -o args | grep '[s]leep 1000' || echo none")) === "none\n", {
      what: "the command that was ended for its caller to end in the guest",
    });
  });

  test("because its VMM is stopped is restarted by a start", async () => {
    const id = await machine();
    const vmm = vmmsOf(realpathSync(flotilla.nodeDirectory())).find(({ machines }) => machines.includes(id));
    assert.ok(vmm !== undefined);
    await silent(id, async () => process.kill(vmm.pid, "SIGSTOP"));
    const { state, ready } = (await flotilla.client().post(`/v1/machines/${id}/start`)).json as Shown;
    assert.deepEqual([state, ready], ["started", true]);
    assert.equal(await flotilla.exec(id, "echo works"), "works\n");
    const types = await typesOf(id);
    assert.deepEqual(
      ["machine.forced", "machine.started"].map((wanted) => types.filter((type) => type === wanted).length),
      [1, 2],
    );
  });

  test("is not one that is only busy", async () => {
    const id = await machine();
    const command = "for i in 1 2 3 4; do sh -c 'while :; do :; done' & done; wait";
    const { json } = await exec(id, { command, timeoutSeconds: BUSY_S });
    assert.equal(json.exitCode, 124, "it computes until it is ended");
    assert.deepEqual(
      (await typesOf(id)).filter((type) => /responsive/.test(type)),
      [],
    );
    assert.equal((await read(id)).ready, true);
  });
});

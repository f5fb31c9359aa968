/**
 * A real machine is suspended and continues: its processes, its files in memory and its workload's output.
 */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, readdirSync, truncateSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { type Flotilla, startFlotilla } from "../support/flotilla.ts";
import { until } from "../support/until.ts";
import { skipReason } from "./vm-fixture.ts";

const LONG = { deadlineMs: 60_000 };
const COUNT = "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.1; done";

describe("a suspended machine", { skip: skipReason }, () => {
  let flotilla: Flotilla;
  let id: string;

  before(async () => {
    flotilla = await startFlotilla({ driver: "qemu" });
    const size = { resources: { cpus: 1, memoryMb: 256, diskGb: 1 } };
    ({ id } = await flotilla.create({ command: ["sh", "-c", COUNT], ...size }));
    await flotilla.start(id);
  });
  after(() => flotilla?.[Symbol.asyncDispose]());

  const files = (): readonly string[] => readdirSync(join(flotilla.nodeDirectory(), "machines", id));
  const bootOfGuest = (): Promise<string> => flotilla.exec(id, "cat /proc/sys/kernel/random/boot_id");
  const suspend = () => flotilla.client().post(`/v1/machines/${id}/stop?keepMemory=true`);

  async function lines(): Promise<readonly string[]> {
    const { text } = await flotilla.client().get(`/v1/machines/${id}/logs?tail=10000`);
    return text.split("\n").flatMap((line) => (line.startsWith("data: ") ? [line.slice("data: ".length)] : []));
  }

  test("its processes and files in memory continue, its clock is right, and its output has no gap", async () => {
    await flotilla.exec(id, "echo kept > /dev/shm/file");
    const boot = await bootOfGuest();
    const { status, json, text } = await suspend();
    assert.equal(status, 200, text);
    assert.equal(json.state, "stopped");
    assert.match(json.suspendedAt, /^\d{4}-/);
    assert.ok(files().includes("memory"));
    const before = (await lines()).length;
    const started = await flotilla.start(id);
    assert.equal(started.suspendedAt, null);
    assert.equal(await bootOfGuest(), boot);
    assert.equal(await flotilla.exec(id, "cat /dev/shm/file"), "kept\n");
    assert.ok(Math.abs(Number(await flotilla.exec(id, "date +%s")) * 1000 - Date.now()) < 30_000);
    await until(async () => (await lines()).length > before + 3, { what: "more output", ...LONG });
    const all = await lines();
    assert.deepEqual(
      all,
      all.map((_line, at) => `line ${at + 1}`),
    );
    const events = await flotilla.events(id);
    assert.ok(events.includes("machine suspended: its memory is kept"), events.join("\n"));
    assert.ok(
      events.some((message) => message.startsWith("resumed with the memory of ")),
      events.join("\n"),
    );
    assert.ok(!files().includes("memory"));
  });

  test("a node agent that is killed while it saves the memory finishes it after its restart", async () => {
    const boot = await bootOfGuest();
    const directory = join(flotilla.nodeDirectory(), "machines", id);
    const answer = suspend();
    await until(() => ["memory.new", "memory"].some((name) => existsSync(join(directory, name))), {
      what: "memory to be written",
      everyMs: 1,
      ...LONG,
    });
    await flotilla.nodes[0]?.kill();
    await flotilla.startNode();
    await answer;
    await until(async () => (await flotilla.get(id)).suspendedAt !== null, {
      what: "the machine to be suspended",
      ...LONG,
    });
    await flotilla.start(id);
    assert.equal(await bootOfGuest(), boot);
  });

  test("before its host goes down it is suspended, and continues with the next agent, still desired to run", async () => {
    await flotilla.start(id);
    const boot = await bootOfGuest();
    const directory = flotilla.nodes[0]?.directory ?? "";
    const main = join(import.meta.dirname, "../../node/src/suspend-main.ts");
    const environment = { ...process.env, FLOTILLA_DATA_DIR: directory };
    const { stdout } = await promisify(execFile)(process.execPath, [main, "suspend", "60000"], { env: environment });
    assert.deepEqual(JSON.parse(stdout), { suspended: [id], stopped: [], running: [] });
    await flotilla.nodes[0]?.kill();
    await flotilla.startNode();
    await until(async () => (await bootOfGuest()) === boot, { what: "the guest to continue", ...LONG });
  });

  test("memory that cannot be loaded is discarded with an event, and the machine boots with its disk", async () => {
    await flotilla.exec(id, "echo synced > /workspace/file");
    const boot = await bootOfGuest();
    assert.equal((await suspend()).status, 200);
    const path = join(flotilla.nodeDirectory(), "machines", id, "memory");
    truncateSync(path, 1_000_000);
    await flotilla.start(id);
    assert.notEqual(await bootOfGuest(), boot);
    assert.equal(await flotilla.exec(id, "cat /workspace/file"), "synced\n");
    const events = await flotilla.events(id);
    assert.ok(
      events.some((message) => message.endsWith("and it boots: it is truncated")),
      events.join("\n"),
    );
    await flotilla.remove(id);
  });
});

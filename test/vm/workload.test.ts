/**
 * Workloads in real machines, through the API: their output is in the log, whichever program dies, and it
 * blocks nothing.
 */
import assert from "node:assert/strict";
import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { type Flotilla, startFlotilla } from "../support/flotilla.ts";
import { until } from "../support/until.ts";
import { skipReason } from "./vm-fixture.ts";

const SMALL = { resources: { cpus: 1, memoryMb: 256, diskGb: 1 } };
const LONG = { deadlineMs: 60_000 };
const MIB = 1024 * 1024;

describe("a machine with a workload", { skip: skipReason }, () => {
  let flotilla: Flotilla;

  before(async () => {
    flotilla = await startFlotilla({ driver: "qemu" });
  });
  after(() => flotilla?.[Symbol.asyncDispose]());

  async function started(line: string, body: object = {}): Promise<string> {
    const { id } = await flotilla.create({ command: ["sh", "-c", line], ...SMALL, ...body });
    await flotilla.start(id);
    return id;
  }

  async function logs(id: string, tail = 10_000): Promise<readonly string[]> {
    const answer = await flotilla.client().get(`/v1/machines/${id}/logs?tail=${tail}`);
    assert.equal(answer.status, 200, answer.text);
    const lines = answer.text.split("\n\n").filter((line) => line.trim() !== "");
    return lines.map((line) => line.replace(/^data: /, ""));
  }

  const untilLines = (id: string, count: number) =>
    until(async () => (await logs(id)).length >= count, { what: `${count} lines`, ...LONG });

  test("its output is readable while it runs and after the machine has stopped; its end stops nothing", async () => {
    const id = await started("echo $GREETING from $PWD; echo to stderr >&2; exit 3", { env: { GREETING: "hello" } });
    await untilLines(id, 3);
    const expected = ["hello from /", "to stderr", "flotilla: the workload ended with exit code 3"];
    assert.deepEqual(await logs(id), expected);
    assert.equal(await flotilla.exec(id, "echo fine"), "fine\n");
    await until(async () => (await flotilla.events(id)).includes("the workload ended with exit code 3"), {
      what: "the event",
      ...LONG,
    });
    await flotilla.stop(id);
    assert.deepEqual(await logs(id), expected);
    await flotilla.remove(id);
  });

  test("it is asked to end with the machine, and its last output is kept", async () => {
    const id = await started("trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.1; done");
    await untilLines(id, 1);
    await flotilla.stop(id);
    const lines = await logs(id);
    // The shell also says that its sleep was terminated.
    assert.deepEqual([lines[0], ...lines.slice(-2)], ["ready", "bye", "flotilla: the workload ended with exit code 0"]);
    assert.ok(!(await flotilla.events(id)).some((message) => message.includes("the workload ended")));
    await flotilla.remove(id);
  });

  test("a killed node agent loses none of its output, repeats none and starts nothing again", async () => {
    const line = "echo start; i=0; while [ $i -lt 150 ]; do i=$((i+1)); echo line $i; sleep 0.05; done; echo done";
    const id = await started(line);
    for (const count of [20, 80]) {
      await untilLines(id, count);
      await flotilla.nodes[0]?.kill();
      await flotilla.startNode();
    }
    await untilLines(id, 153);
    const numbered = Array.from({ length: 150 }, (_, at) => `line ${at + 1}`);
    const expected = ["start", ...numbered, "done", "flotilla: the workload ended with exit code 0"];
    assert.deepEqual(await logs(id), expected);
    await flotilla.remove(id);
  });

  test("a machine with a published port is ready when its workload listens there", async () => {
    const id = await started(
      "until [ -e /tmp/go ]; do sleep 0.1; done; echo listening; exec httpd -f -p 8080 -h /etc",
      {
        ports: [{ port: 8080 }],
        network: { mode: "blocked" },
      },
    );
    assert.equal((await flotilla.get(id)).ready, false);
    await flotilla.exec(id, ["touch", "/tmp/go"]);
    await until(async () => (await flotilla.get(id)).ready, { what: "the machine to be ready", ...LONG });
    assert.deepEqual(await logs(id), ["listening"]);
    await flotilla.stop(id);
    assert.equal((await flotilla.get(id)).ready, false);
    await flotilla.remove(id);
  });

  test("a flood fills neither the host's disk nor its memory, and commands are answered meanwhile", async () => {
    const id = await started("yes 'the same line again and again'");
    const directory = join(flotilla.nodeDirectory(), "machines", id, "logs");
    const bytes = (): number => {
      const sizes = readdirSync(directory).map((name) => statSync(join(directory, name)).size);
      return sizes.reduce((sum, size) => sum + size, 0);
    };
    let last = "";
    // More than is kept: the first file has been dropped by then.
    await until(
      async () => {
        assert.ok(bytes() < 17 * MIB, `${bytes()}`);
        assert.equal(await flotilla.exec(id, "echo fine"), "fine\n");
        last = readdirSync(directory).toSorted().at(-1) ?? "";
        return last === "3";
      },
      { what: "two files to be full", ...LONG },
    );
    assert.deepEqual([...new Set(await logs(id))], ["the same line again and again"]);
    await flotilla.stop(id);
    await flotilla.remove(id);
  });
});

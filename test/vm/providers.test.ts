/**
 * What programs on ComputeSDK and on the AI SDK do with a real machine.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { flotilla as provider } from "../../providers/computesdk/src/provider.ts";
import { machineTools } from "../../providers/ai-sdk/src/tools.ts";
import { Flotilla as Client, ownedMachine } from "@flotilla/sdk";
import { startFlotilla } from "../support/flotilla.ts";
import { skipReason } from "./vm-fixture.ts";

const SIZE = { cpus: 1, memoryMb: 256 };
const IMAGE = "local/busybox";

test("a real machine", { skip: skipReason }, async (t) => {
  await using flotilla = await startFlotilla({ driver: "qemu" });
  const url = flotilla.urls[0] ?? "";
  const apiKey = flotilla.client().key ?? "";
  const client = new Client({ url, apiKey });
  const compute = provider({ url, apiKey, image: IMAGE });

  await t.test("is a sandbox of ComputeSDK from create to destroy", async () => {
    const options = { ...SIZE, envs: { GREETING: "hello" }, metadata: { job: 7 }, timeout: 120_000 };
    const sandbox = await compute.sandbox.create(options);
    const { stdout, exitCode } = await sandbox.runCommand('echo "$GREETING $OWN"; pwd; exit 3', {
      ...{ env: { OWN: "you" }, cwd: "/tmp" },
    });
    assert.deepEqual([stdout, exitCode], ["hello you\n/tmp\n", 3]);

    const said: string[] = [];
    const streamed = await sandbox.runCommand("echo one; echo two >&2", {
      ...{ onStdout: (text: string) => said.push(text), onStderr: (text: string) => said.push(text) },
    });
    assert.deepEqual([streamed.stdout, streamed.stderr, said.toSorted()], ["one\n", "two\n", ["one\n", "two\n"]]);
    assert.equal((await sandbox.runCommand("sleep 60", { timeout: 900 })).exitCode, 124);
    const started = await sandbox.runCommand("sleep 60", { background: true });
    assert.equal(started.exitCode, 0);

    const { filesystem } = sandbox;
    await filesystem.mkdir("/data/deep");
    await filesystem.writeFile("/data/deep/file", "kept ä");
    assert.equal(await filesystem.readFile("/data/deep/file"), "kept ä");
    const [entry] = await filesystem.readdir("/data/deep");
    assert.deepEqual([entry?.name, entry?.type, entry?.size], ["file", "file", 7]);
    await filesystem.remove("/data");
    assert.equal(await filesystem.exists("/data"), false);
    await assert.rejects(filesystem.readFile("/data/deep/file"), /\/data\/deep\/file|does not exist|no such/i);

    const info = await sandbox.getInfo();
    assert.deepEqual([info.status, info.timeout, info.metadata?.["job"]], ["running", 120_000, "7"]);
    assert.deepEqual(
      (await compute.sandbox.list()).map(({ sandboxId }) => sandboxId),
      [sandbox.sandboxId],
    );
    await assert.rejects(sandbox.getUrl({ port: 80 }), /ports: \[80\]/);
    await sandbox.destroy();
    await sandbox.destroy();
    assert.equal(await compute.sandbox.getById(sandbox.sandboxId), null);
  });

  await t.test("continues from a snapshot", async () => {
    const sandbox = await compute.sandbox.create(SIZE);
    await sandbox.runCommand("echo before > /kept");
    const snapshot = (await compute.snapshot?.create(sandbox.sandboxId, { name: "kept" })) as { id: string };
    await sandbox.destroy();
    const again = await compute.sandbox.create({ snapshotId: snapshot.id, timeout: 60_000 });
    assert.equal((await again.runCommand("cat /kept")).stdout, "before\n");
    await again.destroy();
    await compute.snapshot?.delete(snapshot.id);
    assert.deepEqual(await compute.snapshot?.list(), []);
  });

  await t.test("a sandbox that cannot start leaves nothing", async () => {
    await assert.rejects(compute.sandbox.create({ ...SIZE, image: "local/missing" }));
    assert.deepEqual(await client.listMachines(), []);
  });

  await t.test("does what the tools of a model ask for, and ends what is aborted", async () => {
    await using machine = await ownedMachine(client, {
      ...{ source: { type: "image", reference: IMAGE }, resources: { ...SIZE, diskGb: 1 }, ttlSeconds: 300 },
    });
    const { runCommand, writeFile, readFile, listFiles } = machineTools(client, machine.id, { outputCharacters: 40 });
    const call = { toolCallId: "1", messages: [], context: undefined as never };
    assert.equal(await writeFile.execute?.({ path: "/tmp/a", content: "text" }, call), "written");
    assert.equal(await readFile.execute?.({ path: "/tmp/a" }, call), "text");
    assert.match(JSON.stringify(await listFiles.execute?.({ path: "/tmp" }, call)), /"a|left out/);
    assert.deepEqual(await runCommand.execute?.({ command: "cat; echo no >&2; exit 2", stdin: "in" }, call), {
      ...{ exitCode: 2, stdout: "in", stderr: "no\n" },
    });
    const long = await runCommand.execute?.({ command: "seq 1 1000" }, call);
    assert.match(JSON.stringify(long), /"1\\n2\\n3.*characters are left out.*1000\\n"/);

    const aborting = new AbortController();
    const slow = runCommand.execute?.(
      { command: "echo $$ > /tmp/pid; exec sleep 600" },
      {
        ...call,
        abortSignal: aborting.signal,
      },
    );
    const isRunning = async (): Promise<boolean> => {
      const { exitCode } = await client.exec(machine.id, { command: "kill -0 $(cat /tmp/pid)" });
      return exitCode === 0;
    };
    while (!(await isRunning())) continue;
    aborting.abort();
    await assert.rejects(async () => slow, /aborted|cancelled/);
    while (await isRunning()) continue;
  });
});

/**
 * A control plane that is backed up under writes, changes, is destroyed and restored, while the machines of
 * its node run on. The rows of the table in docs/decisions/0044-backup-and-restore.md, in their order.
 */
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { copyFile, readdir, readFile, rm, stat, truncate } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { type Flotilla, type MachineView, startFlotilla } from "../support/flotilla.ts";
import { until } from "../support/until.ts";

const CLI = join(import.meta.dirname, "../../cli/src/main.ts");
const PATIENT = { deadlineMs: 60_000, everyMs: 20 };
const NAMES = ["kept", "stopped", "started", "deleted", "idle"] as const;
type Name = (typeof NAMES)[number];

interface Ran {
  readonly code: number | null;
  readonly output: string;
}

const exists = (path: string): Promise<boolean> =>
  stat(path).then(
    () => true,
    () => false,
  );

describe("a control plane that is destroyed and restored from a backup", () => {
  let flotilla: Flotilla;
  let data: string;
  let file: string;
  const machines = new Map<Name | "created", string>();
  /** The files of VMs by machine, when the control plane was destroyed. */
  let boots: ReadonlyMap<string, string>;
  let revokedKey = "";
  /** Machines whose creation was answered before the backup began. */
  let answered: readonly string[] = [];

  const id = (name: Name | "created"): string => machines.get(name) ?? "";
  const spawnCli = (...argv: readonly string[]): ChildProcess =>
    spawn(process.execPath, [CLI, ...argv], {
      env: { PATH: process.env["PATH"] ?? "", HOME: flotilla.directory, FLOTILLA_DATA_DIR: data },
      stdio: ["ignore", "pipe", "pipe"],
    });
  const flotillaCli = async (...argv: readonly string[]): Promise<Ran> => {
    const child = spawnCli(...argv);
    const pieces: Buffer[] = [];
    for (const stream of [child.stdout, child.stderr]) stream?.on("data", (piece: Buffer) => pieces.push(piece));
    const [code] = (await once(child, "close")) as [number | null];
    return { code, output: Buffer.concat(pieces).toString() };
  };
  /** The VMs of a node by machine, as paths: each has its boot's id. */
  const vmsOf = async (): Promise<ReadonlyMap<string, string>> => {
    const directory = join(flotilla.nodeDirectory(), "machines");
    const files = await readdir(directory, { recursive: true });
    return new Map(files.filter((path) => path.endsWith("vm.json")).map((path) => [path.split("/")[0] ?? "", path]));
  };
  const postmasterPid = async (): Promise<number> =>
    Number((await readFile(join(data, "postgres/data/postmaster.pid"), "utf8")).split("\n")[0]);

  before(async () => {
    flotilla = await startFlotilla();
    data = flotilla.servers[0]?.directory ?? "";
    file = join(flotilla.directory, "backup.tar.gz");
    for (const name of NAMES) {
      const { id: made } = await flotilla.create({ name, env: { FAKE_BOOT_MS: "1" }, autoStopSeconds: 3600 });
      machines.set(name, made);
      await flotilla.start(made);
    }
    for (const name of ["started", "idle"] as const) await flotilla.stop(id(name));
  });
  after(async () => await flotilla[Symbol.asyncDispose]());

  test("a backup under writes has every write that was answered before it, and is written as a whole or not at all", async () => {
    const answer = await flotilla.client().post("/v1/apikeys", { scopes: ["machine:read"] });
    const { key, id: keyId } = answer.json as { readonly key: string; readonly id: string };
    revokedKey = key;
    const written: string[] = [];
    let isOver = false;
    const write = async (): Promise<void> => {
      while (!isOver) written.push((await flotilla.create()).id);
    };
    const writing = Promise.all([write(), write()]);
    await until(() => written.length > 4, { ...PATIENT, what: "some writes" });
    answered = [...written];
    const made = await flotillaCli("backup", "--to", file).finally(() => {
      isOver = true;
    });
    await writing;
    assert.equal(made.code, 0, made.output);
    assert.equal((await stat(file)).mode & 0o777, 0o600);
    const again = await flotillaCli("backup", "--to", file);
    assert.match(`${again.code} ${again.output}`, /^1 .*exists, and is not overwritten/);
    assert.deepEqual(
      (await readdir(flotilla.directory)).filter((name) => name.endsWith(".part")),
      [],
    );

    // What happens after it.
    assert.equal((await flotilla.client().delete(`/v1/apikeys/${keyId}`)).status, 204);
    await flotilla.stop(id("stopped"));
    await flotilla.start(id("started"));
    await flotilla.remove(id("deleted"));
    const gone = async (): Promise<boolean> =>
      !(await exists(join(flotilla.nodeDirectory(), "machines", id("deleted"))));
    await until(gone, { ...PATIENT, what: "the node to remove the deleted machine" });
    machines.set("created", (await flotilla.create({ name: "created" })).id);
    await flotilla.start(id("created"));
  });

  test("a restore that is killed is repeated; no server starts before; a damaged file and a full directory are refused", async () => {
    boots = await vmsOf();
    const postmaster = await postmasterPid();
    await flotilla.servers[0]?.kill();
    const refused = await flotillaCli("restore", file);
    assert.match(`${refused.code} ${refused.output}`, /^1 .*has a control plane already/);
    process.kill(postmaster, "SIGKILL");
    await until(() => !isAlive(postmaster), { ...PATIENT, what: "PostgreSQL to end" });
    for (const name of ["postgres", "secrets.key", "admin.key"])
      await rm(join(data, name), { recursive: true, force: true });

    const damaged = `${file}.damaged`;
    await copyFile(file, damaged);
    await truncate(damaged, (await stat(damaged)).size - 20);
    const other = await flotillaCli("restore", damaged);
    assert.match(`${other.code} ${other.output}`, /^1 .*cannot be restored: it /);
    assert.equal(await exists(join(data, "restore.pending")), false);

    for (const reached of ["restore.pending", "postgres/data/PG_VERSION"]) {
      const child = spawnCli("restore", file);
      const ended = once(child, "exit");
      let output = "";
      for (const stream of [child.stdout, child.stderr]) stream?.on("data", (piece: Buffer) => (output += piece));
      await until(() => child.exitCode !== null || exists(join(data, reached)), { ...PATIENT, what: reached });
      assert.equal(child.exitCode, null, `it ended before ${reached}: ${output}`);
      child.kill("SIGKILL");
      await ended;
      assert.ok(await exists(join(data, "restore.pending")));
    }
    await assert.rejects(flotilla.startServer(), /a restore into .* has not ended/);
    const restored = await flotillaCli("restore", file);
    assert.equal(restored.code, 0, restored.output);
    assert.match(restored.output, /are valid as they were then/);
    await flotilla.startServer();
  });

  const untilNodeReports = (): Promise<unknown> =>
    until(
      async () => {
        const [node] = (await flotilla.client().get("/v1/nodes")).json as { status: string }[];
        return node?.status === "ready";
      },
      { ...PATIENT, what: "the node to report" },
    );
  const untilEvent = (name: Name, text: RegExp): Promise<unknown> =>
    until(async () => (await flotilla.events(id(name))).some((message) => text.test(message)), {
      ...PATIENT,
      what: `${name} to have an event ${text}`,
    });

  test("machines run on in the same boot, and machines that were stopped or started since stay so", async () => {
    await untilNodeReports();
    const kept = await flotilla.untilState(id("kept"), "started", PATIENT.deadlineMs);
    assert.equal(kept.error, null);
    for (const name of ["stopped", "started"] as const) await untilEvent(name, /restored from a backup/);
    await flotilla.untilState(id("stopped"), "stopped", PATIENT.deadlineMs);
    await flotilla.untilState(id("started"), "started", PATIENT.deadlineMs);
    await flotilla.untilState(id("idle"), "stopped", PATIENT.deadlineMs);
    assert.deepEqual(await vmsOf(), boots);
    assert.equal(await flotilla.exec(id("kept"), "echo here"), "here\n");
    for (const machine of answered) assert.equal((await flotilla.get(machine)).id, machine);
  });

  test("a machine that was deleted since is back in error, and gets no new disk", async () => {
    const machine: MachineView = await flotilla.untilState(id("deleted"), "error", PATIENT.deadlineMs);
    assert.match(machine.error ?? "", /does not have the machine any more, so its disk is lost/);
    const answer = await flotilla.client().post(`/v1/machines/${id("deleted")}/exec`, { command: "true" });
    assert.equal(answer.status, 409, answer.text);
    assert.equal(await exists(join(flotilla.nodeDirectory(), "machines", id("deleted"), "disk")), false);
    await flotilla.remove(id("deleted"));
  });

  test("a machine that was created since is not known, and its node keeps it and runs it on", async () => {
    assert.equal((await flotilla.client().get(`/v1/machines/${id("created")}`)).status, 404);
    assert.equal((await vmsOf()).get(id("created")), boots.get(id("created")));
    const listed = async (): Promise<boolean> => {
      const [node] = (await flotilla.client().get("/v1/nodes")).json as { unknownMachines: string[] }[];
      return node?.unknownMachines.join() === id("created");
    };
    await until(listed, { ...PATIENT, what: "the node to list the unknown machine" });
  });

  test("a key that was revoked since is valid again, and the restored control plane works", async () => {
    const url = flotilla.urls[0] ?? "";
    const listed = await fetch(`${url}/v1/machines`, { headers: { authorization: `Bearer ${revokedKey}` } });
    assert.equal(listed.status, 200);
    for (const name of ["kept", "stopped", "started"] as const) {
      await flotilla.stop(id(name));
      assert.equal((await flotilla.start(id(name))).state, "started");
    }
    const { id: made } = await flotilla.create();
    await flotilla.start(made);
  });

  test("the invoices and the chain of recorded calls verify, and the chain has the restore", async () => {
    const [url = ""] = flotilla.urls;
    for (const argv of [
      ["billing", "verify"],
      ["audit", "verify", "--all"],
    ]) {
      const { code, output } = await flotillaCli(...argv, "--url", url);
      assert.equal(code, 0, output);
    }
    const rows = (await flotilla.client().get("/v1/audit?all=true&limit=1000")).json as { type: string }[];
    assert.equal(rows.filter(({ type }) => type === "operator.restore").length, 1);
  });

  test("every running machine has one open run, and no run is open without its boot", async () => {
    const agrees = async (): Promise<boolean> => {
      const { text } = await flotilla.client().get("/metrics");
      const counts = [...text.matchAll(/^flotilla_run_mismatches\{.*\} (\d+)$/gm)].map(([, count]) => count);
      return counts.length === 2 && counts.every((count) => count === "0");
    };
    await until(agrees, { ...PATIENT, what: "runs and boots to agree" });
  });
});

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

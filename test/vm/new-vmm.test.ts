/**
 * The VMM of a real machine is replaced by one of another program while the machine runs: its memory, its
 * commands and terminals, its connections and its workload continue.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { after, before, describe, type TestContext, test } from "node:test";
import { CommandStream, counting, EchoTerminal } from "../support/command-stream.ts";
import { drawn } from "../support/drawn.ts";
import { type Flotilla, startFlotilla } from "../support/flotilla.ts";
import { InstalledVmms } from "../support/installed-vmm.ts";
import { callAgent } from "../support/link-call.ts";
import { vmmsOf } from "../support/node-on-host.ts";
import { restoredMachine } from "../support/real-moves.ts";
import { until } from "../support/until.ts";
import { enterWorld, namespacesSkipReason } from "../support/namespaces.ts";
import { skipReason as vmSkipReason } from "./vm-fixture.ts";

const skipReason = vmSkipReason || namespacesSkipReason;
if (skipReason === false) {
  enterWorld(import.meta.filename);
  execFileSync("ip", ["link", "set", "lo", "up"]);
}

/** Max bytes of a connection on its way to the machine and back. */
const OPEN_BYTES_MAX = 4096;
const LONG = { deadlineMs: 120_000, everyMs: 50 };
const REPLACEMENTS = 2;
/** How many of the kills in the middle of a replacement a run tests. */
const KILLS_PER_RUN = 2;
const WORKLOAD = "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.1; done";

interface Answer {
  readonly outcome: string;
  readonly pauseMs: number | null;
  readonly reason: string | null;
}

describe("a machine whose VMM is replaced", { skip: skipReason }, () => {
  const installed = new InstalledVmms();
  let flotilla: Flotilla;
  let id: string;

  before(async () => {
    flotilla = await startFlotilla({ driver: "qemu" });
    const resources = { cpus: 1, memoryMb: 128, diskGb: 1 };
    id = await restoredMachine(flotilla, { command: ["sh", "-c", WORKLOAD], resources });
    await flotilla.exec(id, "head -c 16000000 /dev/urandom > /dev/shm/kept");
  });
  after(async () => {
    await flotilla?.[Symbol.asyncDispose]();
    installed[Symbol.dispose]();
  });

  const replace = (how = "live"): Promise<Answer> =>
    callAgent(flotilla.nodeDirectory(), `/v1/machines/${id}/vmm`, { how }) as Promise<Answer>;
  const bootOfGuest = (): Promise<string> => flotilla.exec(id, "cat /proc/sys/kernel/random/boot_id");
  const boots = (): readonly string[] => readdirSync(join(flotilla.nodeDirectory(), "machines", id, "boots"));

  /** As an operator upgrades: another program is installed, and the agent is started again. */
  async function upgrade(): Promise<void> {
    installed.installNext();
    await flotilla.nodes[0]?.stop();
    await flotilla.startNode();
  }

  const post = (path: string, body: object): Promise<Response> => {
    const { url, key } = flotilla.client();
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    return fetch(`${url}/v1/machines/${id}/${path}`, { method: "POST", headers, body: JSON.stringify(body) });
  };

  test("a VMM that runs the installed program is not replaced", async () => {
    assert.deepEqual(await replace(), { outcome: "current", pauseMs: null, reason: null });
  });

  test(`loses and repeats no byte of a command, a terminal and the workload in ${REPLACEMENTS} replacements`, async (t) => {
    const kept = await flotilla.exec(id, "sha256sum /dev/shm/kept");
    await flotilla.exec(
      id,
      "(while :; do head -c 300000 /dev/urandom > /dev/shm/changing; sleep 0.2; done) >/dev/null 2>&1 &",
    );
    const guest = await bootOfGuest();
    const before = await flotilla.get(id);
    const { url, key } = flotilla.client();
    const response = await post("exec/stream?output=b64", {
      command: counting("/tmp/enough"),
      timeoutSeconds: 600,
    });
    const numbers = new CommandStream(response);
    const terminal = await EchoTerminal.open(`${url}/v1/machines/${id}/exec/interactive?cmd=/bin/sh`, key ?? "");
    for (let times = 0; times < REPLACEMENTS; times += 1) {
      await upgrade();
      const [directory] = boots();
      const answer = await replace();
      assert.equal(answer.outcome, "replaced", JSON.stringify(answer));
      t.diagnostic(`paused for ${answer.pauseMs} ms`);
      // It is removed while commands continue already.
      await until(() => boots().length === 1, { what: "the directory of the old VMM to be gone", ...LONG });
      assert.notDeepEqual(boots(), [directory]);
      const printed = numbers.stdout.length;
      const echoed = terminal.receivedBytes;
      await until(() => numbers.stdout.length > printed + 1000 && terminal.receivedBytes > echoed + 500_000, {
        what: `more output; ${terminal.closed} ${numbers.exit}`,
        ...LONG,
      });
      assert.equal(await bootOfGuest(), guest);
      assert.equal(await flotilla.exec(id, "sha256sum /dev/shm/kept"), kept);
    }
    assert.deepEqual(await replace(), { outcome: "current", pauseMs: null, reason: null });
    const { sent, received } = await terminal.finish();
    assert.equal(received, sent);
    await flotilla.exec(id, "touch /tmp/enough");
    await numbers.ended;
    assert.match(numbers.exit, /"?exit_?[cC]ode"?:\s*3/);
    const lines = numbers.stdout.trimEnd().split("\n");
    assert.ok(
      lines.every((line, index) => line === String(index + 1)),
      "every number once, in order",
    );
    const now = await flotilla.get(id);
    assert.equal(now.readyAt, before.readyAt, "the run continues");
    const { text } = await flotilla.client().get(`/v1/machines/${id}/logs?tail=10000`);
    const logged = [...text.matchAll(/^data: line (\d+)$/gm)].map(([, number]) => Number(number));
    assert.ok(logged.length > 10);
    assert.ok(
      logged.every((number, index) => number === (logged[0] ?? 0) + index),
      "no line of the workload is lost",
    );
  });

  /** The VMMs that have the machine's disk open. */
  const vmms = () => vmmsOf(flotilla.nodeDirectory()).filter(({ machines }) => machines.includes(id));
  const journal = (): string => readFileSync(join(flotilla.nodeDirectory(), "machines", id, "journal.json"), "utf8");

  test("a connection to a port of the machine continues, and no byte of it is lost or repeated", async () => {
    await flotilla.exec(id, "(nc -ll -p 7000 -e cat) >/dev/null 2>&1 &");
    const pid = String(vmms()[0]?.pid);
    const uplink = execFileSync("nsenter", [
      `--net=/proc/${pid}/ns/net`,
      "--",
      "ip",
      "-4",
      "-o",
      "addr",
      "show",
      "up0",
    ]);
    const [, address = ""] = /inet ([\d.]+)/.exec(uplink.toString()) ?? [];
    const socket = await until(() => connected(address, 7000), { what: "the machine to listen", ...LONG });
    let received = "";
    let sent = "";
    let isFeeding = true;
    const feed = (): void => {
      while (isFeeding && sent.length - received.length < OPEN_BYTES_MAX) {
        const line = `${sent.length}\n`;
        sent += line;
        socket.write(line);
      }
    };
    socket.on("data", (chunk: Buffer) => {
      received += chunk.toString();
      feed();
    });
    feed();
    await upgrade();
    const answer = await replace();
    assert.equal(answer.outcome, "replaced", JSON.stringify(answer));
    const before = received.length;
    await until(() => received.length > before + 1000, { what: "more to return", ...LONG });
    isFeeding = false;
    await until(() => received === sent, { what: "all of it to return", ...LONG });
    socket.destroy();
    // Nothing is left of the interfaces of earlier VMMs.
    const devices = readFileSync(`/proc/${vmms()[0]?.pid}/net/dev`, "utf8");
    assert.deepEqual(
      [...devices.matchAll(/tap\d/g)].map(([name]) => name),
      ["tap0"],
    );
  });

  /** What has begun when something is killed. */
  const STEPS = {
    "the new VMM starts": () => boots().length === 2,
    "the guest's memory is copied": () => vmms().length === 2,
    "the guest is paused": () => existsSync(join(bootsPath(), boots()[0] ?? "", "devices")) || isSwitched(),
    "the journal names the new VMM": () => isSwitched(),
  };
  const bootsPath = (): string => join(flotilla.nodeDirectory(), "machines", id, "boots");
  const isSwitched = (): boolean => journal().includes('"isPaused":true');
  const WATCH = { deadlineMs: 60_000, everyMs: 1 };

  const killAgent = (step: keyof typeof STEPS) => async () => {
    await upgrade();
    const guest = await bootOfGuest();
    const kept = await flotilla.exec(id, "sha256sum /dev/shm/kept");
    const answer = replace().catch(() => null);
    await until(STEPS[step], { what: step, ...WATCH });
    await flotilla.nodes[0]?.kill();
    await answer;
    await flotilla.startNode();
    await until(async () => (await bootOfGuest()) === guest, { what: "the guest to run on", ...LONG });
    assert.equal(await flotilla.exec(id, "sha256sum /dev/shm/kept"), kept);
    assert.equal(vmms().length, 1);
    assert.equal(boots().length, 1);
    await until(async () => ["replaced", "current"].includes((await replace()).outcome), {
      what: "its new VMM",
      ...LONG,
    });
    assert.equal(await bootOfGuest(), guest);
  };

  const killNewVmm = (step: keyof typeof STEPS) => async (t: TestContext) => {
    await upgrade();
    const guest = await bootOfGuest();
    const [old] = vmms();
    const answer = replace();
    const next = await until(
      () => STEPS[step]() && vmmsOf(flotilla.nodeDirectory()).find(({ name, pid }) => name === id && pid !== old?.pid),
      { what: step, ...WATCH },
    );
    process.kill(next.pid, "SIGKILL");
    const { outcome } = await answer;
    t.diagnostic(outcome);
    // Once it runs the guest, its end is that of the machine, which boots.
    if (outcome === "refused") assert.equal(await bootOfGuest(), guest);
    await until(async () => (await bootOfGuest()) !== "", { what: "the guest to answer", ...LONG });
    await until(() => vmms().length === 1, { what: "one VMM", ...LONG });
  };

  async function killOldVmm(t: TestContext): Promise<void> {
    await upgrade();
    const [old] = vmms();
    const answer = replace();
    await until(() => vmms().length === 2, { what: "the new VMM", ...WATCH });
    process.kill(old?.pid ?? 0, "SIGKILL");
    t.diagnostic((await answer).outcome);
    await until(async () => (await bootOfGuest()) !== "", { what: "the guest to answer", ...LONG });
    await until(() => vmms().length === 1, { what: "one VMM", ...LONG });
    assert.equal(boots().length, 1);
  }

  const steps = Object.keys(STEPS) as (keyof typeof STEPS)[];
  const kills: readonly (readonly [string, (t: TestContext) => Promise<void>])[] = [
    ...steps.map(
      (step) =>
        [
          `an agent that is killed when ${step} leaves a machine that runs once, with its memory`,
          killAgent(step),
        ] as const,
    ),
    ...steps
      .filter((step) => step !== "the journal names the new VMM")
      .map(
        (step) =>
          [
            `a new VMM that is killed when ${step} leaves the machine running, with its memory`,
            killNewVmm(step),
          ] as const,
      ),
    ["an old VMM that is killed in the middle leaves a machine that runs once", killOldVmm],
  ];
  for (const [name, kill] of drawn(kills, KILLS_PER_RUN)) test(name, kill);
});

function connected(host: string, port: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port });
    socket.once("error", reject);
    socket.once("connect", () => resolve(socket));
  });
}

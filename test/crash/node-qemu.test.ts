/**
 * Real VMs while server, node agent or both are killed at random moments, in a loop of starts, execs and
 * stops.
 *
 * Afterwards: every machine that was running still runs and is adopted, no check found one running twice,
 * none is orphaned, every acknowledged write is on its disk. Prepared VMs belong to the agent that made them:
 * the next agent ends them, no two machines have the same, and none outlives a stopped agent. At the end no
 * file, process, interface or rule is left. Prints the counts.
 */
import assert from "node:assert/strict";
import { realpathSync } from "node:fs";
import { readdir, rm, truncate } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { CPUS_DEFAULT, DISK_GB_DEFAULT, MEMORY_MB_DEFAULT } from "@flotilla/contract/limits";
import fc from "fast-check";
import { type Flotilla, type MachineView, startFlotilla } from "../support/flotilla.ts";
import { claimOf, faultsOfWaiting, networkOf, type VmmProcess, vmmsOf } from "../support/node-on-host.ts";
import { monotonic, pause, until } from "../support/until.ts";

const CHAOS_MS = Number(process.env["FLOTILLA_TEST_CHAOS_SECONDS"] ?? 20) * 1000;
/**
 * On a busy machine little fits into that: then it continues until there were ENOUGH kills and commands, at
 * most for this long.
 */
const CHAOS_MS_MAX = Math.max(CHAOS_MS, 200_000);
const ENOUGH = 4;
const MACHINES = 2;
const DEFAULT_RESOURCES = { cpus: CPUS_DEFAULT, memoryMb: MEMORY_MB_DEFAULT, diskGb: DISK_GB_DEFAULT };
/** From a restart of the agent until the VMs prepared by its predecessor are ended or belong to a machine. */
const SWEEP_MS = 20_000;
/** Making a template boots a guest. */
const PREPARE_MS = 180_000;

const isRoot = process.getuid?.() === 0;
const skip = isRoot ? false : "needs root: the qemu driver runs every machine as its own user";

/** As in command lines. */
const nodeDirectoryOf = (flotilla: Flotilla): string => realpathSync(flotilla.nodeDirectory());

const vmms = (flotilla: Flotilla): readonly VmmProcess[] => vmmsOf(nodeDirectoryOf(flotilla));

/** VMMs that belong to no machine. */
const waiting = (flotilla: Flotilla): readonly VmmProcess[] =>
  vmms(flotilla).filter(({ name, machines }) => name === "prepared" && machines.length === 0);

/** Machines with two VMMs, and VMMs with two machines. */
function sharedIn(running: readonly VmmProcess[]): readonly string[] {
  const machines = running.flatMap((vmm) => vmm.machines);
  return [
    ...machines.filter((machine, index) => machines.indexOf(machine) !== index).map((id) => `${id} runs twice`),
    ...running.filter((vmm) => vmm.machines.length > 1).map(({ bootId }) => `${bootId} runs several machines`),
  ];
}

/**
 * Files below the node's directory that no machine owns and that no agent keeps for later: templates and what
 * is made once per image and size stay, if they are complete; so does the journal of runs.
 */
async function nodeFiles(flotilla: Flotilla): Promise<readonly string[]> {
  const files = await readdir(flotilla.nodeDirectory(), { recursive: true });
  return files.filter((file) => !KEPT.some((kept) => kept.test(file))).toSorted();
}
const KEPT = [
  /^templates(\/[^/]+-[0-9a-f]{16}(\/(memory|state|disk|template\.json))?)?$/,
  /^prepared$/,
  /^incoming$/,
  /^runs\.journal$/,
  /^images\/unpacked\/[^/]+\/(root-\d+\.ext4|empty-[0-9a-f]{16}\.qcow2)$/,
];

/** A file that has its name when it is complete. */
const UNFINISHED = /\.[0-9a-f]{8}$/;

/** The same without what a running agent is working on. */
async function lastingFiles(flotilla: Flotilla): Promise<readonly string[]> {
  return (await nodeFiles(flotilla)).filter((file) => !/^(prepared|templates)\//.test(file));
}

interface Counts {
  kills: Record<"server" | "node" | "both", number>;
  done: Record<"start" | "exec" | "stop", number>;
  refused: number;
  looks: number;
  /** Prepared VMs of killed agents that the next agent ended. */
  swept: number;
}

class Chaos {
  readonly counts: Counts = {
    kills: { server: 0, node: 0, both: 0 },
    done: { start: 0, exec: 0, stop: 0 },
    refused: 0,
    looks: 0,
    swept: 0,
  };
  /**
   * The numbers of each machine whose write was acknowledged after a sync. They are appended: a command that
   * was interrupted, as its server was killed, may run later than the next one, or leave a file empty that it
   * has truncated.
   */
  readonly written = new Map<string, string[]>();
  readonly shared = new Set<string>();
  /** Boots of prepared VMs that a machine took. */
  readonly taken = new Set<string>();
  readonly #flotilla: Flotilla;
  readonly #random: (max: number) => number;
  readonly #startedAt = monotonic();

  constructor(flotilla: Flotilla) {
    this.#flotilla = flotilla;
    const numbers = fc.sample(fc.nat(1_000_000), 10_000);
    let at = 0;
    this.#random = (max) => (numbers[at++ % numbers.length] ?? 0) % max;
  }

  get hasEnough(): boolean {
    return this.kills >= ENOUGH && this.counts.done.exec >= ENOUGH;
  }

  get kills(): number {
    const { server, node, both } = this.counts.kills;
    return server + node + both;
  }

  get isOver(): boolean {
    return monotonic() - this.#startedAt > (this.hasEnough ? CHAOS_MS : CHAOS_MS_MAX);
  }

  /** Uses one machine as people do, whatever the answers. */
  async use(id: string): Promise<void> {
    for (let number = 1; !this.isOver; number += 1) {
      const verb = (["start", "exec", "exec", "exec", "stop"] as const)[this.#random(5)] ?? "exec";
      try {
        if (verb === "exec") {
          await this.#flotilla.exec(id, `mkdir -p /workspace && echo ${number} >> /workspace/numbers && sync`);
          this.written.set(id, [...(this.written.get(id) ?? []), String(number)]);
        } else await this.#flotilla[verb](id);
        this.counts.done[verb] += 1;
      } catch {
        this.counts.refused += 1;
      }
      await pause(this.#random(300));
    }
  }

  async look(): Promise<void> {
    while (!this.isOver) {
      const running = vmms(this.#flotilla);
      for (const fault of sharedIn(running)) this.shared.add(fault);
      for (const { name, machines, bootId } of running) {
        if (name === "prepared" && machines.length > 0) this.taken.add(bootId);
      }
      this.counts.looks += 1;
      await pause(100);
    }
  }

  /** Kills and restarts until the time is over. */
  async kill(): Promise<void> {
    const { servers, nodes } = this.#flotilla;
    while (!this.isOver) {
      await pause(500 + this.#random(4_000));
      const whom = (["server", "node", "both"] as const)[this.#random(3)] ?? "both";
      const victims = [...(whom === "node" ? [] : servers), ...(whom === "server" ? [] : nodes)];
      await Promise.all(victims.map((victim) => victim.kill()));
      const left = whom === "server" ? [] : waiting(this.#flotilla);
      await pause(this.#random(500));
      if (whom !== "node") await this.#flotilla.startServer();
      if (whom !== "server") await this.#flotilla.startNode();
      await this.#untilSwept(left);
      this.counts.kills[whom] += 1;
    }
  }

  /** Waits until the VMs prepared by the killed agent are ended, unless a machine has just taken one. */
  async #untilSwept(left: readonly VmmProcess[]): Promise<void> {
    const pids = new Set(left.map(({ pid }) => pid));
    const isDone = (): boolean => {
      const remaining = waiting(this.#flotilla).filter(({ pid }) => pids.has(pid));
      assert.deepEqual(remaining, []);
      return true;
    };
    await until(isDone, { what: "what the killed agent had prepared to end", deadlineMs: SWEEP_MS, everyMs: 50 });
    this.counts.swept += left.length;
  }
}

test("real machines survive kills of server and node agent at random moments", { skip }, async () => {
  await using flotilla = await startFlotilla({ driver: "qemu" });
  const hasEntered = async (): Promise<readonly string[] | false> => {
    const files = await lastingFiles(flotilla);
    return files.includes("credential") && !files.some((file) => UNFINISHED.test(file)) && files;
  };
  const before = await until(hasEntered, { what: "the node to keep its credential, and to finish its files" });
  await story(flotilla, before);
});

async function story(flotilla: Flotilla, before: readonly string[]): Promise<void> {
  // Only machines of the default size take prepared VMs, and may be killed in the middle of that.
  const create = (): Promise<MachineView> => flotilla.create({ resources: DEFAULT_RESOURCES });
  await until(() => waiting(flotilla).length > 1, { what: "VMs to be prepared", deadlineMs: PREPARE_MS });
  const keeper = await create();
  await flotilla.start(keeper.id);
  const [kept] = vmms(flotilla).filter((vmm) => vmm.machines.includes(keeper.id));
  assert.equal(kept?.name, "prepared", "the first machine took a VM that was prepared");
  await flotilla.exec(keeper.id, "echo untouched > /run/marker");
  const machines = await Promise.all(Array.from({ length: MACHINES }, create));

  const chaos = new Chaos(flotilla);
  await Promise.all([chaos.kill(), chaos.look(), ...machines.map(({ id }) => chaos.use(id))]);

  assert.deepEqual([...chaos.shared], [], "machines that ran twice, or VMs of two machines");
  assert.equal(await flotilla.exec(keeper.id, "cat /run/marker"), "untouched\n", "the same boot ran through all of it");
  const started = await untilAgreed(flotilla, [keeper, ...machines]);
  const names: string[] = [];
  for (const id of started) names.push(await flotilla.exec(id, "cat /etc/hostname /etc/machine-id"));
  assert.equal(new Set(names).size, started.length, `machines that are not themselves: ${names.join(" ")}`);
  for (const { id } of machines) {
    const found = new Set((await flotilla.exec(id, "cat /workspace/numbers 2>/dev/null || true")).split("\n"));
    const lost = (chaos.written.get(id) ?? []).filter((number) => !found.has(number));
    assert.deepEqual(lost, [], `machine ${id} lost acknowledged writes; it has ${[...found].join(" ")}`);
  }
  await survivesLostJournals(flotilla, keeper.id, machines[0]?.id ?? "");
  await isStartedAgain(flotilla, keeper.id);
  await untilWaitingIsSound(flotilla);

  await Promise.all([keeper, ...machines].map(({ id }) => flotilla.remove(id)));
  await untilNothingIsLeft(flotilla, before);
  const { kills, done, refused, looks, swept } = chaos.counts;
  assert.ok(chaos.hasEnough, `too little happened to prove anything: ${chaos.kills} kills, ${done.exec} execs`);
  process.stdout.write(
    `${chaos.kills} kills (${kills.server} server, ${kills.node} node, ${kills.both} both) among ${done.start} starts, ` +
      `${done.exec} execs, ${done.stop} stops, ${refused} refused meanwhile; ${started.length} of ${machines.length + 1} ` +
      `running at the end, each once and adopted; ${chaos.taken.size} prepared VMs became machines' and ${swept} were ` +
      `swept; 0 twice in ${looks} looks, 0 orphaned, 0 files left\n`,
  );
}

/**
 * A running machine keeps its VM, although that was started under another name; a stopped one keeps its disk.
 */
async function survivesLostJournals(flotilla: Flotilla, running: string, stopped: string): Promise<void> {
  await flotilla.exec(stopped, "echo kept > /workspace/kept");
  await flotilla.stop(stopped);
  await flotilla.nodes[0]?.stop();
  const journalOf = (id: string): string => join(flotilla.nodeDirectory(), "machines", id, "journal.json");
  await rm(journalOf(running));
  await truncate(journalOf(stopped), 30);
  await flotilla.startNode();
  const answers = (): Promise<string | false> => flotilla.exec(running, "cat /run/marker").catch(() => false as const);
  assert.equal(await until(answers, { what: "the running machine to be adopted" }), "untouched\n");
  assert.equal(await flotilla.exec(stopped, "cat /workspace/kept"), "kept\n");
}

/** A machine whose VMM is killed runs again, in another boot. */
async function isStartedAgain(flotilla: Flotilla, id: string): Promise<void> {
  const vmm = vmms(flotilla).find(({ machines }) => machines.includes(id));
  assert.ok(vmm !== undefined);
  process.kill(vmm.pid, "SIGKILL");
  const answers = (): Promise<string | false> =>
    flotilla.exec(id, "cat /run/marker 2>/dev/null || echo another boot").catch(() => false as const);
  assert.equal(await until(answers, { what: "the killed machine to run again", deadlineMs: 30_000 }), "another boot\n");
}

async function untilWaitingIsSound(flotilla: Flotilla): Promise<void> {
  const isSound = (): boolean => {
    assert.deepEqual(faultsOfWaiting(nodeDirectoryOf(flotilla)), []);
    return true;
  };
  await until(isSound, { what: "a directory for each VM that waits, and the other way round" });
}

/** Once all machines are removed: with the agent running, and after it has been stopped. */
async function untilNothingIsLeft(flotilla: Flotilla, before: readonly string[]): Promise<void> {
  const isFreed = async (): Promise<boolean> => {
    assert.deepEqual(
      vmms(flotilla).filter(({ name }) => name !== "prepared" && name !== "template"),
      [],
    );
    assert.deepEqual(await lastingFiles(flotilla), before);
    return true;
  };
  await until(isFreed, { what: "the VMs and files of all machines to go", deadlineMs: 20_000, everyMs: 50 });
  await untilWaitingIsSound(flotilla);
  const directory = nodeDirectoryOf(flotilla);
  const claim = claimOf(directory);
  assert.ok(claim !== undefined, "the node has no part of the host's network");
  assert.notDeepEqual(networkOf(claim), []);
  await flotilla.nodes[0]?.stop();
  assert.deepEqual(vmms(flotilla), [], "VMs that an agent left that was stopped");
  const withoutLink = before.filter((file) => file !== "link.sock");
  assert.deepEqual(await nodeFiles(flotilla), withoutLink);
  assert.deepEqual(networkOf(claim), [], "what is left of the node on the host's network");
}

/**
 * The machines shown as started, once these are exactly those with a VMM: a server killed during a stop
 * learns of its end from the node's next report.
 */
async function untilAgreed(flotilla: Flotilla, machines: readonly MachineView[]): Promise<readonly string[]> {
  const ask = async (): Promise<readonly string[]> => {
    const shown = await Promise.all(machines.map(({ id }) => flotilla.get(id)));
    const states = shown.map(({ state, error }) => `${state} ${error ?? ""}`.trim());
    assert.ok(
      states.every((state) => state === "started" || state === "stopped"),
      states.join(", "),
    );
    const started = shown.filter(({ state }) => state === "started").map(({ id }) => id);
    const vms = vmms(flotilla).flatMap((vmm) => vmm.machines);
    assert.deepEqual(vms.toSorted(), started.toSorted());
    return started;
  };
  return await until(ask, { what: "exactly the started machines to run", deadlineMs: 60_000, everyMs: 100 });
}

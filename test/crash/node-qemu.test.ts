/**
 * Real VMs while server, node agent or both are killed at random moments, in a loop of starts, execs and stops.
 *
 * Afterwards: every machine that was running is still there and adopted, none ran twice at any time that was looked
 * at, none is orphaned, every acknowledged write is on its disk, and no file or process is left. Prints the counts.
 */
import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { test } from "node:test";
import fc from "fast-check";
import { type Flotilla, type MachineView, startFlotilla } from "../support/flotilla.ts";
import { monotonic, pause, until } from "../support/until.ts";

const CHAOS_MS = 90_000;
const MACHINES = 3;

const isRoot = process.getuid?.() === 0;
const skip = isRoot ? false : "needs root: the qemu driver gives every machine a user of its own";

interface VmProcess {
  readonly pid: number;
  /** `<machine>/<boot>`. */
  readonly name: string;
}

/** The VMMs of this Flotilla, by their command lines: whatever names its directory and is QEMU. */
async function vmProcesses(flotilla: Flotilla): Promise<readonly VmProcess[]> {
  const found: VmProcess[] = [];
  for (const entry of await readdir("/proc")) {
    if (!/^\d+$/.test(entry)) continue;
    const argv = (await readFile(`/proc/${entry}/cmdline`, "utf8").catch(() => "")).split("\0");
    const guest = argv.find((argument) => argument.startsWith("guest=") && argument.includes(flotilla.directory));
    const isVmm = argv[0]?.includes("qemu-system") === true;
    if (guest !== undefined && isVmm) found.push({ pid: Number(entry), name: guest.slice(6, guest.indexOf("@")) });
  }
  return found;
}

function machinesRunningTwice(vms: readonly VmProcess[]): readonly string[] {
  const machines = vms.map(({ name }) => name.split("/")[0] ?? "");
  return machines.filter((machine, index) => machines.indexOf(machine) !== index);
}

/** Files below the node's directory that outlive machines: images and the node's own. */
async function nodeFiles(flotilla: Flotilla): Promise<readonly string[]> {
  return (await readdir(flotilla.nodeDirectory(), { recursive: true })).toSorted();
}

interface Counts {
  kills: Record<"server" | "node" | "both", number>;
  done: Record<"start" | "exec" | "stop", number>;
  refused: number;
  looks: number;
}

class Chaos {
  readonly counts: Counts = {
    kills: { server: 0, node: 0, both: 0 },
    done: { start: 0, exec: 0, stop: 0 },
    refused: 0,
    looks: 0,
  };
  /** The last number of each machine whose write was acknowledged after a sync. */
  readonly written = new Map<string, number>();
  readonly twice: string[] = [];
  readonly #flotilla: Flotilla;
  readonly #random: (max: number) => number;
  readonly #endsAt = monotonic() + CHAOS_MS;

  constructor(flotilla: Flotilla) {
    this.#flotilla = flotilla;
    const numbers = fc.sample(fc.nat(1_000_000), 10_000);
    let at = 0;
    this.#random = (max) => (numbers[at++ % numbers.length] ?? 0) % max;
  }

  get isOver(): boolean {
    return monotonic() > this.#endsAt;
  }

  /** Uses one machine as people do, whatever is answered. */
  async use(id: string): Promise<void> {
    for (let number = 1; !this.isOver; number += 1) {
      const verb = (["start", "exec", "exec", "exec", "stop"] as const)[this.#random(5)] ?? "exec";
      try {
        if (verb === "exec") {
          await this.#flotilla.exec(id, `mkdir -p /workspace && echo ${number} > /workspace/number && sync`);
          this.written.set(id, number);
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
      this.twice.push(...machinesRunningTwice(await vmProcesses(this.#flotilla)));
      this.counts.looks += 1;
      await pause(100);
    }
  }

  /** Kills and starts again until the time is over. */
  async kill(): Promise<void> {
    const { servers, nodes } = this.#flotilla;
    while (!this.isOver) {
      await pause(500 + this.#random(4_000));
      const whom = (["server", "node", "both"] as const)[this.#random(3)] ?? "both";
      const victims = [...(whom === "node" ? [] : servers), ...(whom === "server" ? [] : nodes)];
      await Promise.all(victims.map((victim) => victim.kill()));
      await pause(this.#random(500));
      if (whom !== "node") await this.#flotilla.startServer();
      if (whom !== "server") await this.#flotilla.startNode();
      this.counts.kills[whom] += 1;
    }
  }
}

test("real machines survive kills of server and node agent at random moments", { skip }, async () => {
  await using flotilla = await startFlotilla({ driver: "qemu" });
  const hasEntered = async (): Promise<readonly string[] | false> => {
    const files = await nodeFiles(flotilla);
    return files.includes("credential") && files;
  };
  const before = await until(hasEntered, { what: "the node to keep its credential" });
  try {
    await story(flotilla, before);
  } finally {
    for (const { pid } of await vmProcesses(flotilla)) process.kill(pid, "SIGKILL");
  }
});

async function story(flotilla: Flotilla, before: readonly string[]): Promise<void> {
  const keeper = await flotilla.create();
  await flotilla.start(keeper.id);
  await flotilla.exec(keeper.id, "echo untouched > /run/marker");
  const machines = await Promise.all(Array.from({ length: MACHINES }, () => flotilla.create()));

  const chaos = new Chaos(flotilla);
  await Promise.all([chaos.kill(), chaos.look(), ...machines.map(({ id }) => chaos.use(id))]);

  assert.deepEqual(chaos.twice, [], "machines that ran twice");
  assert.equal(await flotilla.exec(keeper.id, "cat /run/marker"), "untouched\n", "the same boot ran through all of it");
  const started = await untilAgreed(flotilla, [keeper, ...machines]);
  for (const id of started) assert.equal(await flotilla.exec(id, "echo here"), "here\n");
  for (const { id } of machines) {
    const number = Number(await flotilla.exec(id, "cat /workspace/number 2>/dev/null || echo 0"));
    assert.ok(number >= (chaos.written.get(id) ?? 0), `machine ${id} lost an acknowledged write`);
  }

  await Promise.all([keeper, ...machines].map(({ id }) => flotilla.remove(id)));
  await until(async () => (await vmProcesses(flotilla)).length === 0, { what: "all VMs to end" });
  const isClean = async (): Promise<boolean> => {
    assert.deepEqual(await nodeFiles(flotilla), before);
    return true;
  };
  await until(isClean, { what: "the files of all machines to go" });
  const { kills, done, refused, looks } = chaos.counts;
  const total = kills.server + kills.node + kills.both;
  assert.ok(total >= 5 && done.exec >= 5, "too little happened to prove anything");
  process.stdout.write(
    `${total} kills (${kills.server} server, ${kills.node} node, ${kills.both} both) among ${done.start} starts, ` +
      `${done.exec} execs, ${done.stop} stops, ${refused} refused meanwhile; ${started.length} of ${machines.length + 1} ` +
      `running at the end, each once and adopted; 0 twice in ${looks} looks, 0 orphaned, 0 files left\n`,
  );
}

/**
 * The machines that are shown as started, once these are exactly those that a VMM runs for: a server that was killed
 * in the middle of a stop learns the end of it from the node's next report.
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
    const vms = (await vmProcesses(flotilla)).map(({ name }) => name.split("/")[0]);
    assert.deepEqual(vms.toSorted(), started.toSorted());
    return started;
  };
  return await until(ask, { what: "exactly the started machines to run", deadlineMs: 60_000, everyMs: 100 });
}

/**
 * When each VMM and each node agent of a Flotilla ran, seen from outside: from /proc, without the agent, the
 * server or the database.
 *
 * Times are epoch milliseconds. A start is the kernel's own, to 10 ms. An end is the first look that did not
 * find the process: looks are POLL_MS apart, on a busy host up to `gapMs`.
 */
import { readdirSync, readFileSync } from "node:fs";
import { vmmsOf } from "./node-on-host.ts";
import { pause } from "./until.ts";

const POLL_MS = 20;
/** Finding new processes reads all of /proc. */
const SCAN_EVERY = 3;
const TICK_MS = 10;

export interface Lifetime {
  readonly pid: number;
  readonly startedAt: number;
  /** null: it runs. */
  endedAt: number | null;
}

export interface VmmLifetime extends Lifetime {
  readonly bootId: string;
  /** The machine whose disk it had open; null: none yet. */
  machineId: string | null;
}

export class LifetimeObserver implements Disposable {
  /**
   * By boot. A boot whose first VMM ended before it ran, such as a restored one, continues in another
   * process: the last one is here.
   */
  readonly vmms = new Map<string, VmmLifetime>();
  readonly agents: Lifetime[] = [];
  /** The longest time between two looks. */
  gapMs = 0;
  readonly #nodeDirectory: string;
  #isOver = false;
  #looks = 0;
  #lookedAt = Date.now();

  /** `nodeDirectory`: as in command lines of VMMs. */
  constructor(nodeDirectory: string) {
    this.#nodeDirectory = nodeDirectory;
    void this.#observe();
  }

  [Symbol.dispose](): void {
    this.#isOver = true;
  }

  async #observe(): Promise<void> {
    while (!this.#isOver) {
      this.#look();
      await pause(POLL_MS);
    }
  }

  #look(): void {
    const now = Date.now();
    this.gapMs = Math.max(this.gapMs, now - this.#lookedAt);
    this.#lookedAt = now;
    for (const seen of [...this.vmms.values(), ...this.agents])
      if (seen.endedAt === null && processStart(seen.pid) === null) seen.endedAt = Date.now();
    this.#looks += 1;
    if (this.#looks % SCAN_EVERY === 0) this.#scan();
  }

  #scan(): void {
    for (const { pid, bootId, name, machines } of vmmsOf(this.#nodeDirectory)) {
      const before = this.vmms.get(bootId);
      const known = before !== undefined && before.pid !== pid && before.endedAt !== null ? undefined : before;
      const startedAt = known?.startedAt ?? processStart(pid);
      if (name === "template" || startedAt === null) continue;
      if (known === undefined) this.vmms.set(bootId, { pid, bootId, startedAt, endedAt: null, machineId: null });
      const seen = this.vmms.get(bootId);
      if (seen !== undefined) seen.machineId ??= machines[0] ?? null;
    }
    for (const pid of agentsOf(this.#nodeDirectory)) {
      const isKnown = this.agents.some((agent) => agent.pid === pid && agent.endedAt === null);
      const startedAt = isKnown ? null : processStart(pid);
      if (startedAt !== null) this.agents.push({ pid, startedAt, endedAt: null });
    }
  }
}

/** null: the process has ended, also if its parent has not reaped it. */
function processStart(pid: number): number | null {
  const fields = textOf(`/proc/${pid}/stat`).split(") ").at(-1)?.split(" ") ?? [];
  const [state = ""] = fields;
  if (["", "Z", "X"].includes(state)) return null;
  const uptimeMs = Number(textOf("/proc/uptime").split(" ")[0]) * 1000;
  return Date.now() - uptimeMs + Number(fields[19]) * TICK_MS;
}

const agentsOf = (nodeDirectory: string): readonly number[] =>
  readdirSync("/proc")
    .filter((entry) => /^\d+$/.test(entry) && textOf(`/proc/${entry}/cmdline`).includes("node/src/main.ts"))
    .filter((entry) =>
      textOf(`/proc/${entry}/environ`)
        .split("\0")
        .some((line) => line.startsWith("FLOTILLA_DATA_DIR=") && nodeDirectory.startsWith(line.slice(18))),
    )
    .map(Number);

/** Empty when the process has ended. */
function textOf(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

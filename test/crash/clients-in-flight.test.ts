/**
 * Running commands, streams, terminals and uploads on real machines, while PostgreSQL, a VMM, the node agent
 * and the server are killed in turn: every client learns of its end soon; none hangs.
 *
 * Afterwards: no part of an upload is visible in a guest and no process of a command is left there; the
 * machines keep running, or are in error and start again; at the end nothing of them is on the host. A VMM's
 * end does not affect clients of other machines, and PostgreSQL's end affects no client.
 */
import assert from "node:assert/strict";
import { realpathSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { CPUS_DEFAULT, DISK_GB_DEFAULT, MEMORY_MB_DEFAULT } from "@flotilla/contract/limits";
import { WebSocket } from "ws";
import { type Flotilla, startFlotilla } from "../support/flotilla.ts";
import { claimOf, networkOf, vmmsOf } from "../support/node-on-host.ts";
import { monotonic, pause, until } from "../support/until.ts";

const MACHINES = 2;
const EXECS = 6;
const STREAMS = 6;
const TERMINALS = 4;
const UPLOADS = 2;
const COMMANDS = EXECS + STREAMS + TERMINALS;
/** A client without an answer by then hangs; without load it takes well under a second. */
const END_DEADLINE_MS = 20_000;
const PREPARE_MS = 120_000;
const RESOURCES = { cpus: CPUS_DEFAULT, memoryMb: MEMORY_MB_DEFAULT, diskGb: DISK_GB_DEFAULT };
/** The program that every running command ends in. */
const LONG = "sleep 31000";
const LOOK = ["busybox", "ps", "-o", "args"];
const CHUNK = Buffer.alloc(64 * 1024, "u");
const CHUNK_EVERY_MS = 50;
/** Each upload has this much on the disk before anything is killed, and nothing afterwards. */
const UPLOADED_KB = 512;

const skip = process.getuid?.() === 0 ? false : "needs root: the qemu driver runs every machine as its own user";

interface Under {
  readonly kind: "exec" | "stream" | "terminal" | "upload";
  readonly machine: string;
  /**
   * Resolves with how the client learned of the end: a status and code, an event, a close code, or `broken`.
   */
  readonly end: Promise<string>;
  isOver: boolean;
  readonly leave: () => void;
}

test("every client learns of its end, and nothing is left of its call, whichever program is killed", {
  skip,
}, async () => {
  await using flotilla = await startFlotilla({ driver: "qemu" });
  const directory = realpathSync(flotilla.nodeDirectory());
  const flight = new Flight(flotilla, directory);
  try {
    await until(() => vmmsOf(directory).length > 2, { what: "VMs to be prepared", deadlineMs: PREPARE_MS });
    await flight.begin();
    await flight.withoutDatabase();
    await flight.withoutVmm();
    await flight.withoutAgent();
    await flight.withoutServer();
    await flight.finish();
  } finally {
    flight.end();
  }
});

class Flight {
  readonly #flotilla: Flotilla;
  readonly #directory: string;
  readonly #machines: string[] = [];
  /** By machine, while no client is active: the processes of user space, and the used disk space. */
  readonly #processes = new Map<string, string>();
  readonly #usedKb = new Map<string, number>();
  /** All clients so far. */
  readonly #launched: Under[] = [];
  #round = 0;

  constructor(flotilla: Flotilla, directory: string) {
    this.#flotilla = flotilla;
    this.#directory = directory;
  }

  /** Releases clients that a failure left. */
  end(): void {
    for (const { leave } of this.#launched) leave();
  }

  async begin(): Promise<void> {
    for (let count = 0; count < MACHINES; count += 1) {
      const { id } = await this.#flotilla.create({ resources: RESOURCES });
      this.#machines.push(id);
      await this.#flotilla.start(id);
      // On the disk before anything is killed: a killed VMM may lose what was not synced.
      await this.#flotilla.exec(id, "mkdir -p /workspace/uploads; sync");
      this.#processes.set(id, await this.#processesOf(id));
      this.#usedKb.set(id, await this.#usedKbOf(id));
    }
  }

  /** The running clients do not need it. */
  async withoutDatabase(): Promise<void> {
    const clients = await this.#launch();
    const pidFile = join(this.#flotilla.directory, "server-0/postgres/data/postmaster.pid");
    const pid = Number((await readFile(pidFile, "utf8")).split("\n")[0]);
    process.kill(pid, "SIGKILL");
    const isReplaced = async () => Number((await readFile(pidFile, "utf8")).split("\n")[0]) !== pid;
    await until(isReplaced, { what: "PostgreSQL to be started again", deadlineMs: 60_000 });
    await until(async () => (await this.#flotilla.client().get("/readyz")).status === 200, {
      what: "the server to be ready",
    });
    assert.deepEqual(summaryOf(clients.filter(({ isOver }) => isOver)), [], "clients that PostgreSQL took along");
    await this.#leaveAll(clients, "postgres");
  }

  async withoutVmm(): Promise<void> {
    const clients = await this.#launch();
    const [victim = "", other = ""] = this.#machines;
    const vmm = vmmsOf(this.#directory).find(({ machines }) => machines.includes(victim));
    assert.ok(vmm !== undefined);
    process.kill(vmm.pid, "SIGKILL");
    const hit = clients.filter(({ machine }) => machine === victim);
    const ends = await this.#endsOf(hit, "VMM");
    assertEnds(ends, {
      exec: /^502 guest_unreachable$/,
      stream: /^event error /,
      terminal: /^exit -1, close 1011$/,
      upload: /^502 guest_unreachable$/,
    });
    const untouched = clients.filter(({ machine }) => machine === other);
    assert.deepEqual(summaryOf(untouched.filter(({ isOver }) => isOver)), [], "clients of another machine");
    const answers = async (): Promise<boolean> => (await this.#flotilla.exec(victim, ["echo", "again"])) === "again\n";
    await until(() => answers().catch(() => false), { what: "the machine to be started again", deadlineMs: 30_000 });
    await this.#leaveAll(untouched, "VMM");
  }

  async withoutAgent(): Promise<void> {
    const clients = await this.#launch();
    const [node] = this.#flotilla.nodes;
    await node?.kill();
    const ends = await this.#endsOf(clients, "node agent");
    assertEnds(ends, {
      exec: /^503 unavailable$/,
      stream: /^event error /,
      terminal: /^exit -1, close 1011$/,
      upload: /^503 unavailable$/,
    });
    await this.#flotilla.startNode();
    for (const id of this.#machines) await this.#flotilla.untilState(id, "started");
    await this.#untilNothingIsLeft("node agent");
  }

  async withoutServer(): Promise<void> {
    const clients = await this.#launch();
    await this.#flotilla.servers[0]?.kill();
    const ends = await this.#endsOf(clients, "server");
    assertEnds(ends, { exec: /^broken$/, stream: /^broken$/, terminal: /^close 1006$/, upload: /^broken$/ });
    await this.#flotilla.startServer();
    for (const id of this.#machines) await this.#flotilla.untilState(id, "started");
    await this.#untilNothingIsLeft("server");
  }

  async finish(): Promise<void> {
    await Promise.all(this.#machines.map((id) => this.#flotilla.remove(id)));
    const isFreed = async (): Promise<boolean> => {
      assert.deepEqual(
        vmmsOf(this.#directory).filter(({ machines }) => machines.length > 0),
        [],
      );
      assert.deepEqual(await readdir(join(this.#directory, "machines")), []);
      return true;
    };
    await until(isFreed, { what: "the machines' VMMs and files to go", deadlineMs: 20_000 });
    const claim = claimOf(this.#directory);
    assert.ok(claim !== undefined);
    await this.#flotilla.nodes[0]?.stop();
    assert.deepEqual(vmmsOf(this.#directory), []);
    assert.deepEqual(networkOf(claim), []);
  }

  // Clients.

  /** Resolves when all of them have begun. */
  async #launch(): Promise<readonly Under[]> {
    this.#round += 1;
    const machineOf = (index: number): string => this.#machines[index % this.#machines.length] ?? "";
    const many = (count: number, launch: (machine: string, index: number) => Under): Under[] =>
      Array.from({ length: count }, (_, index) => launch(machineOf(index), index));
    const clients = [
      ...many(EXECS, (machine) => this.#exec(machine)),
      ...many(STREAMS, (machine) => this.#stream(machine)),
      ...many(TERMINALS, (machine) => this.#terminal(machine)),
      ...many(UPLOADS, (machine, index) => this.#upload(machine, index)),
    ];
    const isUnderWay = async (): Promise<boolean> => {
      const over = clients.filter(({ isOver }) => isOver);
      assert.deepEqual(summaryOf(over), []);
      const counts = await Promise.all(this.#machines.map((id) => this.#longOnes(id)));
      assert.equal(
        counts.reduce((sum, count) => sum + count, 0),
        COMMANDS,
      );
      // They have no names yet, but use space.
      for (const id of this.#machines) assert.ok((await this.#grownKb(id)) > UPLOADED_KB, "uploads have not begun");
      return true;
    };
    await until(isUnderWay, { what: "all clients to be under way", deadlineMs: 60_000, everyMs: 200 });
    return clients;
  }

  #client(machine: string, kind: Under["kind"], run: (signal: AbortSignal) => Promise<string>): Under {
    const leaving = new AbortController();
    const end = run(leaving.signal).catch(() => "broken");
    const client: Under = { kind, machine, end, isOver: false, leave: () => leaving.abort() };
    // A fetch with an early answer keeps sending its body until it is aborted.
    void end.then(() => {
      client.isOver = true;
      client.leave();
    });
    this.#launched.push(client);
    return client;
  }

  #send(signal: AbortSignal, path: string, init: RequestInit): Promise<Response> {
    const { url, key } = this.#flotilla.client();
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    return fetch(`${url}/v1/machines/${path}`, { ...init, headers, signal });
  }

  #exec(machine: string): Under {
    const body = JSON.stringify({ command: `${LONG}; :` });
    return this.#client(machine, "exec", async (signal) =>
      statusOf(await this.#send(signal, `${machine}/exec`, { method: "POST", body })),
    );
  }

  #stream(machine: string): Under {
    const body = JSON.stringify({ command: `echo begun; ${LONG}; :` });
    return this.#client(machine, "stream", async (signal) => {
      const response = await this.#send(signal, `${machine}/exec/stream`, { method: "POST", body });
      if (response.status !== 200) return await statusOf(response);
      const text = await response.text();
      const [, event = "none", data = ""] = /event: (exit|error)\ndata: (.*)\n\n$/.exec(text) ?? [];
      return `event ${event} ${data}`;
    });
  }

  #terminal(machine: string): Under {
    const { url, key } = this.#flotilla.client();
    const address = `${url.replace("http", "ws")}/v1/machines/${machine}/exec/interactive`;
    return this.#client(machine, "terminal", async (signal) => {
      const socket = new WebSocket(address, { headers: { authorization: `Bearer ${key}` } });
      signal.addEventListener("abort", () => socket.terminate());
      let exit = "";
      socket.on("open", () => socket.send(Buffer.from(`${LONG}; :\n`)));
      socket.on("message", (data, isBinary) => {
        if (!isBinary) exit = `exit ${(JSON.parse((data as Buffer).toString()) as { code: number }).code}, `;
      });
      socket.on("error", () => undefined);
      return await new Promise((resolve) => {
        socket.on("close", (code) => resolve(`${exit}close ${code}`));
      });
    });
  }

  #upload(machine: string, index: number): Under {
    const path = `${machine}/files?path=/workspace/uploads/${this.#round}-${index}`;
    return this.#client(machine, "upload", async (signal) => {
      const body = new ReadableStream<Uint8Array>({
        async pull(controller) {
          await pause(CHUNK_EVERY_MS);
          if (signal.aborted) controller.error(signal.reason);
          else controller.enqueue(CHUNK);
        },
      });
      return await statusOf(await this.#send(signal, path, { method: "POST", body, duplex: "half" }));
    });
  }

  /** How each of them ended. Throws when one has not by the deadline. */
  async #endsOf(clients: readonly Under[], killed: string): Promise<readonly (readonly [Under["kind"], string])[]> {
    const startedAt = monotonic();
    const waiting = () => summaryOf(clients.filter(({ isOver }) => !isOver));
    await until(() => waiting().length === 0, {
      what: "every client to learn of the end",
      deadlineMs: END_DEADLINE_MS,
    }).catch((error: unknown) => {
      throw new Error(`clients hang after the end of the ${killed}: ${waiting().join(", ")}`, { cause: error });
    });
    const ends = await Promise.all(clients.map(async ({ kind, end }) => [kind, await end] as const));
    const different = [...new Set(ends.map(([kind, end]) => `${kind}: ${end}`))].toSorted();
    process.stdout.write(
      `${killed}: ${clients.length} clients told within ${Math.round(monotonic() - startedAt)} ms\n  ${different.join("\n  ")}\n`,
    );
    return ends;
  }

  async #leaveAll(clients: readonly Under[], after: string): Promise<void> {
    for (const { leave } of clients) leave();
    await this.#untilNothingIsLeft(after);
  }

  // What is left.

  async #longOnes(id: string): Promise<number> {
    return (await this.#processesOf(id)).split("\n").filter((line) => line.trim() === LONG).length;
  }

  /** The command lines of user space, without the one that lists them. */
  async #processesOf(id: string): Promise<string> {
    const lines = (await this.#flotilla.exec(id, LOOK)).split("\n").map((line) => line.trim());
    const isOther = (line: string): boolean => line !== "" && line !== LOOK.join(" ") && !line.startsWith("[");
    return lines.slice(1).filter(isOther).toSorted().join("\n");
  }

  async #usedKbOf(id: string): Promise<number> {
    const lines = (await this.#flotilla.exec(id, ["df", "-Pk", "/workspace"])).trim().split("\n");
    return Number(lines.at(-1)?.split(/\s+/)[2]);
  }

  async #grownKb(id: string): Promise<number> {
    return (await this.#usedKbOf(id)) - (this.#usedKb.get(id) ?? 0);
  }

  async #untilNothingIsLeft(after: string): Promise<void> {
    for (const id of this.#machines) {
      const isClean = async (): Promise<boolean> => {
        assert.equal(await this.#processesOf(id), this.#processes.get(id));
        assert.equal(await this.#flotilla.exec(id, ["ls", "-A", "/workspace/uploads"]), "");
        assert.ok((await this.#grownKb(id)) < UPLOADED_KB, `uploads take ${await this.#grownKb(id)} KiB`);
        return true;
      };
      await until(isClean, {
        what: `nothing to be left after the ${after}`,
        deadlineMs: END_DEADLINE_MS,
        everyMs: 100,
      });
    }
  }
}

async function statusOf(response: Response): Promise<string> {
  await response.arrayBuffer();
  return `${response.status} ${response.headers.get("x-error-code") ?? ""}`;
}

const summaryOf = (clients: readonly Under[]): readonly string[] =>
  clients.map(({ kind, machine }) => `${kind} in ${machine}`);

function assertEnds(
  ends: readonly (readonly [Under["kind"], string])[],
  expected: Readonly<Record<Under["kind"], RegExp>>,
): void {
  for (const [kind, end] of ends) assert.match(end, expected[kind], kind);
}

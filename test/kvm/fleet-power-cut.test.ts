/**
 * The power of hosts of a fleet is cut: a server here, and two emulated hosts that have joined it, with
 * machines under KVM, on disks that lose what was not flushed. The hosts can only dial out.
 *
 * Always: a line counts as acknowledged when the answer of the command that wrote and synced it has arrived.
 * Each acknowledged line is in its machine afterwards, once and in order, and each machine runs on one host.
 *
 *     FLOTILLA_CUTS=5 npm test -- test/kvm/fleet-power-cut.test.ts      # more cuts in moves
 */
import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { after, before, describe, test } from "node:test";
import { type Flotilla, portToReturnTo, startFlotilla } from "../support/flotilla.ts";
import { pause, until } from "../support/until.ts";
import { EmulatedHost, skipReasonUnflushed, THIS_HOST } from "./emulated-host.ts";

const HOSTS = ["east", "west"] as const;
type HostName = (typeof HOSTS)[number];

const CUTS = Number(process.env["FLOTILLA_CUTS"] ?? 1);
const SLOW = { deadlineMs: 900_000, everyMs: 1_000 };
/** A node is unreachable after 30 s without a report. */
const NOTICED = { deadlineMs: 60_000, everyMs: 500 };
/** Guests are emulated twice. */
const COMMAND_SECONDS = 300;
const LINES_MIN = 5;
/** The moment of a cut, so that it comes in the middle of anything. */
const MOMENT_MS = 3_000;
/** About as long as a move takes. */
const MOVE_MS = 20_000;
const DATA = "/var/lib/flotilla";
const NODE_DIRECTORY = `${DATA}/node`;
const small = { resources: { cpus: 1, memoryMb: 256, diskGb: 1 } };

interface Operation {
  readonly status: string;
  readonly error: string | null;
  readonly steps: readonly { readonly name: string; readonly status: string }[];
}

interface NodeView {
  readonly id: string;
  readonly status: string;
}

/** A machine, and the lines that it acknowledged. */
class Writer {
  readonly id: string;
  readonly acknowledged: number[] = [];
  readonly #flotilla: Flotilla;
  #next = 1;

  constructor(flotilla: Flotilla, id: string) {
    this.#flotilla = flotilla;
    this.id = id;
  }

  async write(): Promise<void> {
    const line = this.#next++;
    await this.#run(`echo ${line} >> /workspace/lines && sync`);
    this.acknowledged.push(line);
  }

  /** Until a command fails, as it does when the host's power is cut. */
  async writeUntilItFails(): Promise<void> {
    for (;;) {
      try {
        await this.write();
      } catch {
        return;
      }
    }
  }

  async verify(): Promise<void> {
    const read = () => this.#run("cat /workspace/lines");
    const content = await until(read, { what: `the lines of ${this.id}`, ...SLOW });
    const lines = content.split("\n").filter((line) => line !== "");
    assert.deepEqual(lines, [...new Set(lines)], "a line is there twice");
    const numbers = lines.map(Number);
    assert.deepEqual(
      numbers,
      numbers.toSorted((a, b) => a - b),
      "the lines are not in order",
    );
    const lost = this.acknowledged.filter((line) => !numbers.includes(line));
    assert.deepEqual(lost, [], `acknowledged lines are missing from ${numbers.join(" ")}`);
  }

  /** The output of a command that ends with 0. */
  async #run(command: string): Promise<string> {
    const body = { command, timeoutSeconds: COMMAND_SECONDS };
    const { status, text, json } = await this.#flotilla.client().post(`/v1/machines/${this.id}/exec`, body);
    if (status === 200 && json.exitCode === 0) return json.stdout;
    throw new Error(`${command} was answered with ${status}: ${text}`);
  }
}

describe("a power cut of hosts of a fleet", { skip: skipReasonUnflushed }, () => {
  const hosts = new Map<string, EmulatedHost>();
  let flotilla: Flotilla;
  let begin: (name: HostName) => Promise<void>;
  let resident: Writer | undefined;
  let traveller: Writer | undefined;

  const hostOf = (name: string): EmulatedHost => {
    const host = hosts.get(name);
    if (host === undefined) throw new Error(`there is no host ${name}`);
    return host;
  };
  const nodes = async (): Promise<readonly NodeView[]> => (await flotilla.client().get("/v1/nodes")).json as NodeView[];
  const untilNode = (name: string, status: string, how = SLOW): Promise<unknown> =>
    until(
      async () => {
        const found = (await nodes()).find(({ id }) => id === name);
        if (found?.status !== status) throw new Error(`it is ${found?.status}`);
        return true;
      },
      { what: `node ${name} to be ${status}`, ...how },
    );
  const lastWords = async (name: string): Promise<string> =>
    (await hostOf(name).run("tail -n 30 /var/log/node.log")).output;
  const powerOn = async (name: HostName): Promise<void> => {
    await hostOf(name).boot();
    await begin(name);
  };
  const whereIs = async (writer: Writer): Promise<HostName> => (await flotilla.get(writer.id)).nodeId as HostName;
  const other = (name: HostName): HostName => (name === "east" ? "west" : "east");
  /** How many VMMs on a host have this machine's disk open. */
  const vmmsOn = async (name: string, { id }: Writer): Promise<number> => {
    const script = `
      const { vmmsOf } = await import("./test/support/node-on-host.ts");
      const found = vmmsOf("${NODE_DIRECTORY}").filter(({ machines }) => machines.includes("${id}"));
      console.log("vmms " + found.length);`.replaceAll("\n", " ");
    const said = await hostOf(name).must(`node --input-type=module -e '${script}'`, SLOW.deadlineMs);
    return Number(/^vmms (\d+)$/m.exec(said)?.[1]);
  };

  before(async () => {
    const port = await portToReturnTo();
    flotilla = await startFlotilla({
      nodes: 0,
      serverEnvironment: () => ({
        FLOTILLA_NODE_LISTEN: `127.0.0.1:${port}`,
        FLOTILLA_NODE_ADDRESSES: `${THIS_HOST}:${port}`,
        FLOTILLA_JOIN_TOKEN: "",
      }),
    });
    const { token } = (await flotilla.client().post("/v1/tokens", { maxUses: HOSTS.length })).json;
    begin = async (name) => {
      const environment = `FLOTILLA_DATA_DIR=${DATA} FLOTILLA_NODE_ID=${name} FLOTILLA_JOIN_TOKEN=${token}`;
      const url = `FLOTILLA_URL=https://${THIS_HOST}:${port}`;
      await hostOf(name).must(`${environment} ${url} setsid ./flotilla node >>/var/log/node.log 2>&1 & echo begun`);
      await untilNode(name, "ready").catch(async (error: Error) => {
        throw new Error(`${error.message}\n${await lastWords(name)}`);
      });
    };
    for (const name of HOSTS) {
      hosts.set(name, await EmulatedHost.make({ forgetsUnflushed: true, hasNetwork: true }));
      await powerOn(name);
    }
  });
  after(async () => {
    for (const host of hosts.values()) await host[Symbol.asyncDispose]();
    await flotilla[Symbol.asyncDispose]();
  });

  /** A machine on a host, which runs and has written. */
  const settle = async (name: HostName): Promise<Writer> => {
    const away = other(name);
    assert.equal((await flotilla.client().post(`/v1/nodes/${away}/cordon`)).status, 200);
    const { id } = await flotilla.create(small);
    await flotilla.start(id);
    assert.equal((await flotilla.client().post(`/v1/nodes/${away}/uncordon`)).status, 200);
    const writer = new Writer(flotilla, id);
    assert.equal(await whereIs(writer), name);
    for (let line = 0; line < LINES_MIN; line += 1) await writer.write();
    return writer;
  };

  test("two hosts join, and each runs a machine", async () => {
    resident = await settle("west");
    traveller = await settle("east");
  });

  test("a host loses its power: machines of others run on, and its own run again with all that was synced", async () => {
    assert.ok(resident !== undefined && traveller !== undefined);
    const writing = traveller.writeUntilItFails();
    await pause(MOMENT_MS + randomInt(MOMENT_MS));
    await hostOf("east").cutPower();
    await untilNode("east", "unreachable", NOTICED);
    await resident.write();
    const { error } = await flotilla.get(traveller.id);
    assert.match(error ?? "", /east/);
    await powerOn("east");
    await writing;
    await flotilla.untilState(traveller.id, "started", SLOW.deadlineMs);
    await traveller.verify();
    await resident.verify();
  });

  const operation = async (id: string) => (await flotilla.client().get(`/v1/operations/${id}`)).json as Operation;

  for (const lost of ["source", "target"] as const)
    test(`the ${lost} of a move loses its power: the machine runs on one host, with all that was synced`, async (context) => {
      assert.ok(traveller !== undefined);
      for (let cut = 1; cut <= CUTS; cut += 1) {
        const from = await whereIs(traveller);
        const to = other(from);
        // On a busy host an emulated one may be late with its reports.
        for (const name of HOSTS) await untilNode(name, "ready");
        await flotilla.untilState(traveller.id, "started", SLOW.deadlineMs);
        await traveller.write();
        const asked = await flotilla.client().post(`/v1/machines/${traveller.id}/move`, { nodeId: to });
        assert.equal(asked.status, 202, asked.text);
        await pause(randomInt(MOVE_MS));
        const before = (await operation(asked.json.id)).steps.findLast(({ status }) => status !== "pending");
        const dark = lost === "source" ? from : to;
        await hostOf(dark).cutPower();
        await untilNode(dark, "unreachable", NOTICED);
        await powerOn(dark);
        const isOver = async () => {
          const now = await operation(asked.json.id);
          return now.status !== "running" && now;
        };
        const { status, steps, error } = await until(isOver, { what: "the move to end", ...SLOW });
        context.diagnostic(`cut in "${before?.name}" (${before?.status}): ${status} ${error ?? ""}`);
        await flotilla.untilState(traveller.id, "started", SLOW.deadlineMs);
        const place = await whereIs(traveller);
        assert.equal(place, status === "succeeded" ? to : from, JSON.stringify(steps));
        await traveller.verify();
        assert.deepEqual([await vmmsOn(place, traveller), await vmmsOn(other(place), traveller)], [1, 0]);
      }
    });

  test("both machines run, both hosts are ready, and the machines can be deleted", async () => {
    assert.ok(resident !== undefined && traveller !== undefined);
    for (const name of HOSTS) await untilNode(name, "ready");
    for (const { id } of [resident, traveller]) await flotilla.untilState(id, "started", SLOW.deadlineMs);
    for (const { id } of [resident, traveller]) await flotilla.remove(id);
  });
});

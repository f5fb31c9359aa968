/**
 * Nodes on other hosts: a server in one network namespace, and two nodes in others, which can only dial out.
 * Cables are pulled, packets and connections are lost, and agents are killed and stopped.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { type Flotilla, portToReturnTo, Program, startFlotilla } from "../support/flotilla.ts";
import { enterWorld, FarHost, HOST_ADDRESS, namespacesSkipReason, openLan } from "../support/namespaces.ts";
import { until } from "../support/until.ts";

if (namespacesSkipReason === false) enterWorld(import.meta.filename);

const DEADLINE_MS = 60_000;
const NAMES = ["left", "right"] as const;
type Name = (typeof NAMES)[number];

interface NodeView {
  readonly id: string;
  readonly status: string;
  readonly lastHeartbeatAt: string | null;
}

describe("nodes that can only dial out", { skip: namespacesSkipReason }, () => {
  const hosts = new Map<Name, FarHost>();
  const nodes = new Map<Name, Program>();
  const machines = new Map<Name, string>();
  let flotilla: Flotilla;
  let port: number;

  before(async () => {
    openLan();
    for (const [index, name] of NAMES.entries()) hosts.set(name, new FarHost(name, index + 2));
    port = await portToReturnTo();
    flotilla = await startFlotilla({
      nodes: 0,
      serverEnvironment: () => ({ FLOTILLA_NODE_LISTEN: `0.0.0.0:${port}`, FLOTILLA_JOIN_TOKEN: "" }),
    });
  });
  after(async () => {
    for (const node of nodes.values()) node.signal("SIGCONT");
    await Promise.all([...nodes.values()].map((node) => node.stop().catch(() => node.kill())));
    await flotilla[Symbol.asyncDispose]();
  });

  const startNode = async (name: Name, token = ""): Promise<void> => {
    const directory = join(flotilla.directory, name);
    const environment = {
      FLOTILLA_DATA_DIR: directory,
      FLOTILLA_NODE_ID: name,
      FLOTILLA_DRIVER: "fake",
      FLOTILLA_LOG_LEVEL: "debug",
      FLOTILLA_URL: `https://${HOST_ADDRESS}:${port}`,
      FLOTILLA_JOIN_TOKEN: token,
    };
    const node = new Program(name, "node/src/main.ts", directory, environment, hosts.get(name)?.launcher);
    nodes.set(name, node);
    await node.start();
  };
  const machineOf = (name: Name): string => machines.get(name) ?? "";
  const untilNode = (name: Name, status: string, since: string | null = null): Promise<NodeView> =>
    until(
      async () => {
        const all = (await flotilla.client().get("/v1/nodes")).json as NodeView[];
        const node = all.find(({ id }) => id === name);
        if (node === undefined || node.status !== status) throw new Error(`it is ${node?.status}`);
        return node.lastHeartbeatAt !== since && node.lastHeartbeatAt !== null ? node : undefined;
      },
      { what: `node ${name} to be ${status}`, deadlineMs: DEADLINE_MS, everyMs: 50 },
    );
  /** How many boots of its machine run on a node. */
  const bootsOn = async (name: Name): Promise<number> => {
    const files = await readdir(join(flotilla.directory, name, "node", "machines", machineOf(name)), {
      recursive: true,
    });
    return files.filter((file) => file.endsWith("vm.json")).length;
  };

  test("an address and a join token are enough, and each runs machines although nothing can connect to it", async () => {
    const { token } = (await flotilla.client().post("/v1/tokens", { maxUses: 2 })).json;
    for (const name of NAMES) await startNode(name, token);
    for (const name of NAMES) await untilNode(name, "ready");
    for (let count = 0; machines.size < NAMES.length && count < 8; count += 1) {
      const { id } = await flotilla.create();
      const { state, nodeId } = await flotilla.start(id);
      assert.equal(state, "started");
      machines.set(nodeId as Name, id);
    }
    for (const name of NAMES) assert.equal(await flotilla.exec(machineOf(name), `echo ${name}`), `${name}\n`);
  });

  test("a server says where it listens as its host's addresses change, without those of its machines", async () => {
    const [added, ofMachine] = ["10.77.0.200", "240.1.64.0"];
    execFileSync("ip", ["address", "add", `${ofMachine}/31`, "dev", "lan"]);
    execFileSync("ip", ["address", "add", `${added}/24`, "dev", "lan"]);
    const addresses = await until(
      async () => {
        const { nodeAddresses } = (await flotilla.client().post("/v1/tokens", {})).json as { nodeAddresses: string[] };
        return nodeAddresses.includes(`${added}:${port}`) && nodeAddresses;
      },
      { what: "the new address", deadlineMs: DEADLINE_MS, everyMs: 500 },
    );
    assert.ok(!addresses.includes(`${ofMachine}:${port}`));
  });

  test("without a cable, or with packets lost in one direction, a node is unreachable, and later all is as before", async (t) => {
    const earlier = await Promise.all(NAMES.map((name) => flotilla.get(machineOf(name))));
    const cutAt = performance.now();
    hosts.get("left")?.unplug();
    hosts.get("right")?.deafen();
    await nodes.get("left")?.kill();
    await startNode("left");
    for (const name of NAMES) {
      await untilNode(name, "unreachable");
      t.diagnostic(`${name} was unreachable after ${Math.round(performance.now() - cutAt)} ms`);
      const machine = await flotilla.untilState(machineOf(name), "error", DEADLINE_MS);
      assert.match(machine.error ?? "", new RegExp(`node ${name} does not report`));
      assert.equal(await bootsOn(name), 1);
    }
    const backAt = performance.now();
    hosts.get("left")?.plugIn();
    hosts.get("right")?.hearOnlyNew();
    for (const name of NAMES) {
      await untilNode(name, "ready");
      t.diagnostic(`${name} was back after ${Math.round(performance.now() - backAt)} ms`);
    }
    for (const [index, name] of NAMES.entries()) {
      const calledAt = performance.now();
      assert.equal(await flotilla.exec(machineOf(name), "echo again"), "again\n");
      t.diagnostic(`a command on ${name} took ${Math.round(performance.now() - calledAt)} ms`);
      const { id, state, ready, error, nodeId, readyAt } = await flotilla.get(machineOf(name));
      assert.partialDeepStrictEqual(earlier[index], { id, state, ready, error, nodeId, readyAt });
      assert.equal(await bootsOn(name), 1);
      const events = await flotilla.events(machineOf(name));
      assert.equal(events.filter((message) => message === "machine started").length, 1);
    }
  });

  test("a command that is sent while the agent is stopped runs once when the agent continues", async () => {
    const node = nodes.get("right");
    assert.ok(node !== undefined);
    const { lastHeartbeatAt } = await untilNode("right", "ready");
    node.signal("SIGSTOP");
    const isStopped = async (): Promise<boolean> =>
      / T /.test((await readFile(`/proc/${node.pid}/stat`, "utf8")).replace(/\(.*\)/, ""));
    await until(isStopped, { what: "the agent to stop" });
    const running = flotilla.exec(machineOf("right"), "echo once >>/count");
    node.signal("SIGCONT");
    assert.equal(await running, "");
    assert.equal(await flotilla.exec(machineOf("right"), "cat /count"), "once\n");
    await untilNode("right", "ready", lastHeartbeatAt);
    for (const name of NAMES) await flotilla.remove(machineOf(name));
  });
});

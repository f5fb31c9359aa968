/**
 * What machines can and cannot reach, with real guests in a set of network namespaces.
 */
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { connect } from "node:net";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { after, afterEach, before, describe, test } from "node:test";
import type { Vm } from "../../node/src/driver/driver.ts";
import { BLOCKS, blockOf } from "../../node/src/network/addresses.ts";
import { CLAIMS_DIRECTORY } from "../../node/src/network/claims.ts";
import { hostRules } from "../../node/src/network/rules.ts";
import { enterWorld } from "../support/namespaces.ts";
import { until } from "../support/until.ts";
import { skipReason } from "../vm/vm-fixture.ts";
import { HOST_ADDRESS, NOTHING, OUTSIDE, OUTSIDE_PORT, World } from "./world.ts";

if (skipReason === false) enterWorld(import.meta.filename);

describe("the network of machines", { skip: skipReason }, () => {
  let world: World;

  before(async () => {
    world = await World.make();
  });
  afterEach(async () => {
    await world.driver.sweep(new Set());
    world.events.splice(0);
  });
  after(() => world[Symbol.asyncDispose]());

  const eventOf = (part: string): Promise<string> =>
    until(() => world.events.find((event) => event.includes(part)), { what: `an event of ${part}` });

  /** The guest's answer to a connection from the host. */
  async function askGuest(vm: Vm, port: number): Promise<string> {
    assert.ok(vm.network);
    const socket = await vm.network.dial(port);
    socket.end();
    return text(socket);
  }

  test("an open machine reaches the outside by name, with its host's address, and neither hosts nor other machines", async () => {
    world.names({ "server.test": [OUTSIDE.allowed] });
    const host = createServer((_, response) => response.end("the host to you\n"));
    host.listen(8088, "0.0.0.0");
    await once(host, "listening");
    host.unref();
    const machine = await world.start({ mode: "open" });
    const other = await world.start({ mode: "open" });
    assert.equal(await machine.get("server.test"), `${OUTSIDE.allowed} to ${HOST_ADDRESS}`);
    assert.equal(await machine.get(OUTSIDE.forbidden), `${OUTSIDE.forbidden} to ${HOST_ADDRESS}`);
    const ask = `printf 'GET /bytes/20000000 HTTP/1.0\\r\\n\\r\\n' | busybox nc ${OUTSIDE.allowed} ${OUTSIDE_PORT}`;
    assert.ok(Number(await machine.run(`${ask} | busybox wc -c`)) > 20_000_000);

    await other.run("(while true; do echo 'another machine to you' | busybox nc -l -p 7000; done) >/dev/null 2>&1 &");
    assert.match(await until(() => askGuest(other.vm, 7000), { what: "the other machine" }), /another machine/);
    const pairEnd = other.address.replace(/\d+$/, (last) => String(Number(last) - 1));
    const { nameServer } = world.network.block;
    const places: readonly [string, number][] = [
      ...[OUTSIDE.metadata, OUTSIDE.azure, OUTSIDE.alibaba].map((address): [string, number] => [address, OUTSIDE_PORT]),
      ...[other.address, pairEnd].map((address): [string, number] => [address, 7000]),
      ...[pairEnd, HOST_ADDRESS, nameServer, "192.0.0.1", "127.0.0.1"].map((address): [string, number] => [
        address,
        8088,
      ]),
    ];
    for (const place of places) assert.equal(await machine.get(...place), NOTHING, place.join(":"));
    assert.match(await eventOf(OUTSIDE.metadata), /: egress denied to 169\.254\.169\.254:8080 \(tcp\)$/);
    await new Promise((resolve) => host.close(resolve));
  });

  test("a machine that runs reaches no place of the fleet as soon as that is closed, and other ports of its host", async () => {
    const machine = await world.start({ mode: "open" });
    const place = [OUTSIDE.allowed, OUTSIDE_PORT] as const;
    assert.equal(await machine.get(...place), `${OUTSIDE.allowed} to ${HOST_ADDRESS}`);
    await world.network.closed.close([place.join(":"), `${OUTSIDE.forbidden}:1`]);
    assert.equal(await machine.get(...place), NOTHING);
    assert.equal(await machine.get(OUTSIDE.forbidden), `${OUTSIDE.forbidden} to ${HOST_ADDRESS}`, "another port");
    await world.network.closed.close([]);
    assert.equal(await machine.get(...place), `${OUTSIDE.allowed} to ${HOST_ADDRESS}`);
  });

  test("a blocked machine sends nothing, not even a name, and answers its host", async () => {
    world.names({ "server.test": [OUTSIDE.allowed] });
    const machine = await world.start({ mode: "blocked" });
    assert.deepEqual(machine.vm.network?.nameservers, []);
    assert.equal(await machine.get(OUTSIDE.allowed), NOTHING);
    assert.match(await machine.run("busybox nslookup server.test 192.0.0.1"), /refused|no servers could be reached/);
    assert.match(
      await machine.run(`busybox nslookup server.test ${OUTSIDE.names}`),
      /refused|no servers could be reached|unreachable/,
    );
    assert.match(await machine.run(`busybox ping -c 1 -W 1 ${OUTSIDE.allowed}`), / 0 packets received/);
    await machine.run("(echo served | busybox nc -l -p 7000) >/dev/null 2>&1 &");
    assert.equal(await until(() => askGuest(machine.vm, 7000), { what: "the guest's answer" }), "served\n");
    await assert.rejects(askGuest(machine.vm, 7001), { code: "ECONNREFUSED" });
    await eventOf(`egress denied to ${OUTSIDE.allowed}:${OUTSIDE_PORT} (tcp)`);
    await eventOf(`egress denied to ${OUTSIDE.names}:53 (udp)`);
    await eventOf(`egress denied to ${OUTSIDE.allowed} (icmp)`);
  });

  test("what a machine sends is counted to the end of its VM, by any agent, and what is refused is not", async () => {
    const machine = await world.start({ mode: "open" });
    const blocked = await world.start({ mode: "blocked" });
    const sent = ({ vm }: { readonly vm: Vm }): number => vm.network?.sentBytes() ?? -1;
    const before = sent(machine);
    const ping = `busybox ping -c 3 -s 60000 -W 1 ${OUTSIDE.allowed}`;
    assert.match(await machine.run(ping), /3 packets transmitted/);
    await blocked.run(ping);
    const bytes = sent(machine) - before;
    assert.ok(bytes >= 180_000 && bytes < 200_000, `${bytes} bytes`);
    assert.ok(sent(blocked) < 10_000, `a blocked machine sent ${sent(blocked)} bytes`);
    const atRelease = sent(machine);
    const counter = machine.vm.network?.countOn();
    machine.vm.release();
    const again = await world.adopt(machine);
    assert.ok(sent(again) >= atRelease);
    await again.run(ping);
    const atEnd = sent(again);
    assert.ok(atEnd >= atRelease + 180_000);
    await again.vm.kill();
    assert.ok(sent(again) >= atEnd, "also after its namespace is gone");
    assert.ok(sent(machine) >= atRelease);
    assert.ok((counter?.bytes() ?? 0) >= atEnd, "a counter continues after the release");
    counter?.close();
  });

  test("listed networks are reachable and nothing else, however wide the list is", async () => {
    const machine = await world.start({ mode: "allowCidrs", cidrs: ["198.51.100.77/24", "2001:db8::/32"], hosts: [] });
    assert.match(await machine.get(OUTSIDE.allowed), new RegExp(OUTSIDE.allowed));
    assert.equal(await machine.get(OUTSIDE.forbidden), NOTHING);
    assert.equal(await machine.get(HOST_ADDRESS, 8088), NOTHING);
    await eventOf(`egress denied to ${OUTSIDE.forbidden}:${OUTSIDE_PORT} (tcp)`);

    const wide = await world.start({ mode: "allowCidrs", cidrs: ["0.0.0.0/0"], hosts: [] });
    assert.match(await wide.get(OUTSIDE.forbidden), new RegExp(OUTSIDE.forbidden));
    for (const place of [OUTSIDE.metadata, machine.address]) assert.equal(await wide.get(place), NOTHING);
  });

  test("no machine reaches a network that the operator has blocked, by list, name or otherwise", async (t) => {
    world.names({ "server.test": [OUTSIDE.forbidden] });
    world.blockedNetworks = ["203.0.113.0/24", "203.0.113.0/25"];
    t.after(() => (world.blockedNetworks = []));
    const open = await world.start({ mode: "open" });
    const listed = await world.start({ mode: "allowCidrs", cidrs: ["0.0.0.0/0"], hosts: ["server.test"] });
    for (const machine of [open, listed]) {
      assert.match(await machine.get(OUTSIDE.allowed), new RegExp(OUTSIDE.allowed));
      for (const place of [OUTSIDE.forbidden, "server.test"]) assert.equal(await machine.get(place), NOTHING);
    }
    await eventOf(`egress denied to ${OUTSIDE.forbidden}:${OUTSIDE_PORT} (tcp)`);

    // An agent that was started without the setting opens them for machines that run.
    world.blockedNetworks = [];
    open.vm.release();
    const again = await world.adopt(open);
    assert.match(await again.get(OUTSIDE.forbidden), new RegExp(OUTSIDE.forbidden));
  });

  test("allowed hosts are reachable at any of their addresses, and by no other name", async () => {
    const names = { "moving.test": [OUTSIDE.allowed], "a.sub.test": [OUTSIDE.moved], "evil.test": [OUTSIDE.metadata] };
    world.names({ ...names, "other.test": [OUTSIDE.forbidden] });
    const hosts = ["Moving.test.", "*.sub.test", "evil.test"];
    const machine = await world.start({ mode: "allowCidrs", cidrs: [], hosts });
    assert.match(await machine.get("moving.test"), new RegExp(OUTSIDE.allowed));
    assert.match(await machine.get("a.sub.test"), new RegExp(OUTSIDE.moved));
    for (const place of ["other.test", "evil.test", OUTSIDE.forbidden]) assert.equal(await machine.get(place), NOTHING);
    await eventOf('egress denied to "other.test" (name)');
    await eventOf(`egress denied to ${OUTSIDE.metadata}:${OUTSIDE_PORT} (tcp)`);

    // The name moves to an address that was never allowed, which is followed without a query.
    world.names({ "moving.test": [OUTSIDE.forbidden] });
    await until(async () => (await machine.get(OUTSIDE.forbidden)) !== NOTHING, { what: "the new address" });
    await until(async () => (await machine.get(OUTSIDE.allowed)) === NOTHING, {
      what: "the old address to be closed",
    });
    assert.match(await machine.get("moving.test"), new RegExp(OUTSIDE.forbidden));
  });

  test("neither a VMM nor another user of the host can bypass it", async () => {
    const machine = await world.start({ mode: "blocked" });
    await machine.run("(while true; do echo served | busybox nc -l -p 7000; done) >/dev/null 2>&1 &");
    await until(() => askGuest(machine.vm, 7000), { what: "the guest's answer" });
    const { pid } = machine.vm.record;
    const uid = /^Uid:\t(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? "";
    /** As an unprivileged user of the host, on the host or in the VMM's namespace. */
    const does = (user: string, place: readonly string[], ...argv: readonly string[]): boolean => {
      const [program = "", ...rest] = [...place, "setpriv", `--reuid=${user}`, "--clear-groups", "--", ...argv];
      return spawnSync(program, rest, { stdio: "ignore" }).status === 0;
    };
    const connecting = (address: string, port: number): readonly string[] => [
      ...["busybox", "timeout", "3", "busybox", "nc", "-w", "2", address, String(port)],
    ];
    const inside = ["nsenter", `--net=/proc/${pid}/ns/net`, "--"];
    await until(() => does(uid, inside, ...connecting("192.0.0.2", 7000)), {
      what: "the VMM's user to reach its own guest",
    });
    assert.ok(!does(uid, inside, ...connecting(OUTSIDE.allowed, OUTSIDE_PORT)), "the VMM's user gets out");
    assert.ok(does("0", inside, "nft", "list", "ruleset"));
    assert.ok(!does(uid, inside, "nft", "flush", "ruleset"), "the VMM's user changes the rules");

    await until(() => does("0", [], ...connecting(machine.address, 7000)), { what: "root of the host to connect" });
    assert.ok(!does("12345", [], ...connecting(machine.address, 7000)), "another user of the host connects");
    assert.ok(does("12345", [], ...connecting(OUTSIDE.allowed, OUTSIDE_PORT)));
    await until(() => does("0", [], ...connecting(machine.address, 7000)), { what: "root to connect again" });
  });

  test("a published port is reached through the agent, and nothing on the host listens for it", async () => {
    const machine = await world.start({ mode: "open" }, [7000]);
    await machine.run("(while true; do busybox nc -l -p 7000 -e echo hello; done) >/dev/null 2>&1 &");
    assert.match(await until(() => askGuest(machine.vm, 7000), { what: "the guest's answer" }), /hello/);
    assert.deepEqual(machine.vm.network?.hostPorts, []);
    const listening = readFileSync("/proc/self/net/tcp", "utf8").matchAll(/^ *\d+: 0100007F:([0-9A-F]{4}) \S+ 0A/gm);
    const numbers = [...listening].map((match) => Number.parseInt(match[1] ?? "", 16));
    assert.deepEqual(
      numbers.filter((number) => number >= 20_000 && number < 32_768),
      [],
    );
  });

  test("where the operator allows it, published ports are on loopback too, under numbers that stay", async (t) => {
    world.publishOnLoopback = true;
    t.after(() => (world.publishOnLoopback = false));
    const machine = await world.start({ mode: "blocked" }, [7000, 7001]);
    const [served, silent, ...more] = machine.vm.network?.hostPorts ?? [];
    assert.ok(served && silent && more.length === 0);
    assert.deepEqual([served.port, silent.port], [7000, 7001]);
    const ask = async (hostPort: number, input: string): Promise<string> => {
      const socket = connect(hostPort, "127.0.0.1");
      socket.end(input);
      return text(socket);
    };
    // Answers with what it received once the caller has closed its half.
    await machine.run("(while true; do busybox nc -l -p 7000 -e cat; done) >/dev/null 2>&1 &");
    const echoed = await until(() => ask(served.hostPort, "x".repeat(1_000_000)), { what: "the echo" });
    assert.equal(echoed.length, 1_000_000);
    await assert.rejects(ask(silent.hostPort, "hello"), { code: "ECONNRESET" });

    machine.vm.release();
    await assert.rejects(ask(served.hostPort, "hello"), { code: "ECONNREFUSED" });
    const again = await world.adopt(machine);
    assert.deepEqual(again.vm.network?.hostPorts, [served, silent]);
    assert.equal(await until(() => ask(served.hostPort, "hello"), { what: "the echo" }), "hello");
  });

  test("a machine keeps its network access while no agent runs, and the next agent follows its names again", async () => {
    world.names({ "moving.test": [OUTSIDE.allowed] });
    const machine = await world.start({ mode: "allowCidrs", cidrs: ["203.0.113.0/24"], hosts: ["moving.test"] });
    assert.match(await machine.get("moving.test"), new RegExp(OUTSIDE.allowed));
    await machine.run(
      `(while true; do echo "$(printf 'GET / HTTP/1.0\\r\\n\\r\\n' | busybox nc -w 2 ${OUTSIDE.forbidden} ${OUTSIDE_PORT} | busybox tail -n 1)" >> /tmp/seen; busybox sleep 0.2; done) >/dev/null 2>&1 &`,
    );
    machine.vm.release();
    const { block } = world.network;
    await world.network[Symbol.asyncDispose]();
    assert.match(execFileSync("nft", ["list", "tables"], { encoding: "utf8" }), new RegExp(block.table));
    world.names({ "moving.test": [OUTSIDE.moved] });

    await world.openAgent();
    assert.deepEqual(world.network.block, block);
    const again = await world.adopt(machine);
    assert.match(await again.get("moving.test"), new RegExp(OUTSIDE.moved));
    const seen = await again.run("cat /tmp/seen");
    assert.match(seen, new RegExp(`^${OUTSIDE.forbidden} to ${HOST_ADDRESS}$`, "m"));
    assert.ok(!/^$/m.test(seen.trim()), `a connection failed while no agent ran: ${JSON.stringify(seen)}`);
  });

  test("a node's network state on its host is removed with its last machine, or by the next Flotilla there", async () => {
    await world.start({ mode: "open" });
    const interfaces = (): string => readFileSync("/proc/net/dev", "utf8");
    const tables = (): string => execFileSync("nft", ["list", "tables"], { encoding: "utf8" });
    const { block } = world.network;
    assert.ok(interfaces().includes(block.hostEndPrefix));
    await world.driver.sweep(new Set());
    await until(() => !interfaces().includes(block.hostEndPrefix), { what: "the interface to vanish with its VMM" });

    // A node whose agent was killed and whose directory was then removed.
    const gone = blockOf((Number.parseInt(block.id, 16) + 1) % BLOCKS);
    writeFileSync(join(CLAIMS_DIRECTORY, gone.id), "/nowhere/node");
    execFileSync("nft", ["-f", "-"], { input: hostRules(gone) });
    await world.network[Symbol.asyncDispose]();
    assert.ok(!tables().includes(block.table));
    assert.ok(!execFileSync("ip", ["address"], { encoding: "utf8" }).includes(block.nameServer));
    await world.openAgent();
    assert.ok(!tables().includes(gone.table));
    assert.ok(tables().includes(block.table));
    assert.deepEqual(readdirSync(CLAIMS_DIRECTORY), [block.id]);
  });
});

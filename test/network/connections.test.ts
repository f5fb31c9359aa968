/**
 * How much a guest can put into the tables of its host, of connections and of neighbours, which all machines
 * and the host itself share, and before the name server of its node. The guest is a namespace or a program
 * here: it sets the TTL of its resets, and writes its own ARP.
 */
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { type Jail, jailArgv } from "../../node/src/driver/qemu/jail.ts";
import {
  blockOf,
  GATEWAY_ADDRESS,
  GUEST_MAC,
  NAME_SERVER_PORT,
  TAP_NAME,
  vethPairOf,
} from "../../node/src/network/addresses.ts";
import { connectionRules, hostRules, namespaceSetup, policyRules } from "../../node/src/network/rules.ts";
import { enterWorld, namespacesSkipReason } from "../support/namespaces.ts";

if (namespacesSkipReason === false) enterWorld(import.meta.filename);

const BLOCK = blockOf(5);
const OUTSIDE = "198.51.100.2";
const PORT = 8080;
const CONNECTIONS = 16;
const FORWARD = "echo 1 >/proc/sys/net/ipv4/ip_forward";

/** Closes no connection before its client. */
const serving = (port: number, address: string): string => `
  const server = require("node:net").createServer((socket) => socket.on("error", () => {}).resume());
  server.listen(${port}, "${address}", () => console.log("listening"));
`;
/** Opens connections until one is not answered, resets them, and prints how many they were. */
const connecting = (port: number, address: string): string => `
  const { connect } = require("node:net");
  const opened = [];
  const open = () => {
    const socket = connect(${port}, "${address}", () => { clearTimeout(late); opened.push(socket); open(); });
    socket.on("error", () => {});
    const late = setTimeout(() => {
      socket.destroy();
      for (const each of opened) each.resetAndDestroy();
      console.log(opened.length);
    }, 3_000);
  };
  open();
`;
/** Opens and closes a connection. */
const VISIT = `require("node:net").connect(${PORT}, "${OUTSIDE}").resume().end()`;
const DATAGRAMS = 8_000;
/** Sends many datagrams. `port` is of the number of those that are left. */
const sending = (port: string, address: string): string => `
  const socket = require("node:dgram").createSocket("udp4");
  let left = ${DATAGRAMS};
  const send = () => socket.send("x", ${port}, "${address}", () => ((left -= 1) > 0 ? send() : socket.close()));
  send();
`;

/** A VMM whose guest asks for the gateway in 40 other names; it prints the neighbours of its namespace. */
const ASKING_VMM = `#!/usr/bin/perl
open(my $tap, "+<", "/dev/net/tun") or die $!;
my $wanted = pack("a16 s x22", "${TAP_NAME}", 0x1002);
ioctl($tap, 0x400454ca, $wanted) or die $!;
my $mac = pack("H12", "${GUEST_MAC.replaceAll(":", "")}");
for my $other ("192.0.0.2", map { "10.9.8.$_" } 1 .. 40) {
  my $from = $mac . pack("C4", split(/[.]/, $other));
  my $request = pack("n n C C n", 1, 0x800, 6, 4, 1) . $from . pack("x6 C4", split(/[.]/, "${GATEWAY_ADDRESS}"));
  syswrite($tap, pack("H12", "f" x 12) . $mac . pack("n", 0x806) . $request);
}
print \`ip neigh show dev ${TAP_NAME}\`;
`;

const ip = (...argv: readonly string[]): void => void execFileSync("ip", argv);
const inside = (name: string, ...argv: readonly string[]): readonly string[] => ["ip", "netns", "exec", name, ...argv];

function run([program = "", ...argv]: readonly string[], input = ""): string {
  return execFileSync(program, argv, { input, encoding: "utf8" });
}

/** A guest behind a namespace like that of a machine, with a cable in place of the VMM's interface. */
function makeMachine(uid: number, connections: number) {
  const pair = vethPairOf(BLOCK, uid);
  assert.ok(pair !== null);
  const setup = namespaceSetup(BLOCK, pair, { uid, connections });
  const [machine, guest] = [`machine-${uid}`, `guest-${uid}`];
  for (const name of [machine, guest]) ip("netns", "add", name);
  run(inside(machine, "nft", "-f", "-"), setup.rules);
  ip("-n", machine, "link", "add", "tap0", "type", "veth", "peer", "name", "eth0", "netns", guest);
  ip("-n", machine, "address", "add", "192.0.0.1/30", "dev", "tap0");
  ip("-n", machine, "link", "add", "up0", "type", "veth", "peer", "name", pair.hostEnd, "netns", String(process.pid));
  ip("-n", machine, "address", "add", `${pair.machineAddress}/31`, "dev", "up0");
  ip("address", "add", `${pair.hostAddress}/31`, "dev", pair.hostEnd);
  ip("-n", guest, "address", "add", "192.0.0.2/30", "dev", "eth0");
  ip("link", "set", pair.hostEnd, "up");
  for (const link of ["tap0", "up0"]) ip("-n", machine, "link", "set", link, "up");
  ip("-n", guest, "link", "set", "eth0", "up");
  ip("-n", machine, "route", "add", "default", "via", pair.hostAddress);
  ip("-n", guest, "route", "add", "default", "via", "192.0.0.1");
  run(inside(machine, "sh", "-c", FORWARD));
  run(inside(machine, "nft", "-f", "-"), policyRules({ mode: "open", networks: [], hosts: [] }, BLOCK, []));
  const runs = (script: string): string => run(inside(guest, process.execPath, "-e", script));
  return {
    setup,
    runs,
    secondsFor(script: string): number {
      const before = performance.now();
      runs(script);
      return (performance.now() - before) / 1_000;
    },
    /** Its resets get to the machine's namespace, and no further. */
    keepResets(): void {
      const table = "table ip own {\n chain out {\n type filter hook output priority 0\n }\n}\n";
      run(inside(guest, "nft", "-f", "-"), `${table}add rule ip own out tcp flags & rst == rst ip ttl set 1\n`);
    },
    /** The connections of the machine that the host has in its table. */
    onHost(): readonly string[] {
      const listed = run(["conntrack", "--dump", "--orig-src", pair.machineAddress]);
      return listed.split("\n").filter((line) => line !== "");
    },
    /** How many packets the host got from the machine. */
    packets: (): number =>
      Number(new RegExp(`${pair.hostEnd}: *\\d+ +(\\d+)`).exec(readFileSync("/proc/net/dev", "utf8"))?.[1]),
    inNamespace: (): number => Number(run(inside(machine, "cat", "/proc/sys/net/netfilter/nf_conntrack_count"))),
    /** The closed connections that its namespace has. */
    waiting: (): string => run(inside(machine, "conntrack", "--dump", "--proto", "tcp", "--state", "TIME_WAIT")),
    end: (): void => ip("netns", "delete", machine),
  };
}

/** Makes the namespace of the next VMM, which is the launcher here. */
function startNext(network: Jail["network"], launcher = "true"): string {
  const runtime = { program: "", files: [], directories: [], links: [] };
  const nothing = { groups: [], files: [], memory: null, imagesDirectory: null, limits: {}, environment: {} };
  const jail = { ...nothing, launcher, network, runtime, moreSteps: [] } as unknown as Jail;
  return run(jailArgv(jail, []));
}

/** Starts a program that runs until the test ends, and has begun when it prints something. */
async function begin([program = "", ...argv]: readonly string[]): Promise<void> {
  const child = spawn(program, argv, { stdio: ["ignore", "pipe", "inherit"] });
  child.unref();
  await once(child.stdout, "data");
  child.stdout.destroy();
}

describe("the tables that guests share with their host", { skip: namespacesSkipReason }, () => {
  before(async () => {
    execFileSync("mount", ["-t", "tmpfs", "test", "/run"]);
    ip("netns", "add", "outside");
    ip("link", "add", "wan", "type", "veth", "peer", "name", "eth0", "netns", "outside");
    ip("address", "add", "198.51.100.1/24", "dev", "wan");
    ip("link", "set", "wan", "up");
    ip("-n", "outside", "address", "add", `${OUTSIDE}/24`, "dev", "eth0");
    ip("-n", "outside", "link", "set", "eth0", "up");
    run(["sh", "-c", FORWARD]);
    run(["nft", "-f", "-"], hostRules(BLOCK));
    ip("link", "set", "lo", "up");
    ip("address", "add", `${BLOCK.nameServer}/32`, "dev", "lo");
    const here = [process.execPath, "-e"];
    await begin([...inside("outside", ...here), serving(PORT, OUTSIDE)]);
    await begin([...here, serving(NAME_SERVER_PORT, BLOCK.nameServer)]);
  });

  for (const [index, [where, port, address]] of (
    [
      ["the outside", PORT, OUTSIDE],
      ["the name server of its node", 53, GATEWAY_ADDRESS],
    ] as const
  ).entries())
    test(`connections to ${where} that a guest made its namespace forget count on the host, and go with its VMM`, () => {
      run(["nft", "-f", "-"], connectionRules(BLOCK, CONNECTIONS));
      const machine = makeMachine(700_000 + index, CONNECTIONS);
      machine.keepResets();
      assert.equal(Number(machine.runs(connecting(port, address))), CONNECTIONS);
      assert.equal(machine.onHost().length, CONNECTIONS);
      const more = Number(machine.runs(connecting(port, address)));
      assert.equal(more, 0, "its namespace has none of them any more, and the host all");
      assert.equal(machine.onHost().length, CONNECTIONS);
      machine.end();
      assert.equal(machine.onHost().length, CONNECTIONS);
      startNext(machine.setup);
      assert.equal(machine.onHost().length, 0);
    });

  test("what a guest has closed in order, and does not count, leaves the tables after ten seconds", () => {
    run(["nft", "-f", "-"], connectionRules(BLOCK, CONNECTIONS));
    const machine = makeMachine(700_002, CONNECTIONS);
    machine.runs(VISIT);
    const tables = [machine.onHost().join("\n"), machine.waiting()];
    for (const table of tables) assert.match(table, /^tcp +6 \d TIME_WAIT [^\n]*\n?$/);
  });

  test("a guest adds no more than a thousand connections a second, so those that have ended do not fill a table", () => {
    run(["nft", "-f", "-"], connectionRules(BLOCK, 2 * DATAGRAMS));
    const machine = makeMachine(700_003, 2 * DATAGRAMS);
    const seconds = machine.secondsFor(sending("10_000 + left", OUTSIDE));
    const connections = machine.inNamespace();
    assert.ok(connections >= 1_000 && connections < 3_000 + 1_000 * seconds, `${connections} in ${seconds} s`);
  });

  test("a guest's packets to the name server of its node are limited, also those of one connection", () => {
    const machine = makeMachine(700_004, CONNECTIONS);
    const before = machine.packets();
    const seconds = machine.secondsFor(sending("53", GATEWAY_ADDRESS));
    const packets = machine.packets() - before;
    assert.ok(packets >= 1_000 && packets < 2_000 + 500 * seconds, `${packets} in ${seconds} s`);
  });

  test("a guest that asks in the names of others adds no neighbours to the table that its host shares", () => {
    const pair = vethPairOf(BLOCK, 700_005);
    assert.ok(pair !== null);
    const launcher = join(mkdtempSync("/run/launcher-"), "launcher");
    writeFileSync(launcher, ASKING_VMM, { mode: 0o755 });
    const neighbours = startNext(namespaceSetup(BLOCK, pair, { uid: 700_005, connections: CONNECTIONS }), launcher);
    assert.match(neighbours, /^192\.0\.0\.2 .*\n$/);
  });
});

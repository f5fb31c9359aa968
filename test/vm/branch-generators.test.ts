/**
 * The clones of one running machine draw different bytes: in the kernel, and in generators of long-running
 * programs that do what docs/branches.md says. That a program which does not draws the same bytes in each
 * clone shows that these tests can fail.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import type { GuestHook } from "@flotilla/contract/link/link";
import { machineIdOf } from "../../node/test/support/in-process.ts";
import { type BranchNode, startBranchNode } from "./branch-node.ts";
import { debianRoot } from "./debian-root.ts";
import { NodePlace, shell, shellInBackground, skipReason } from "./vm-fixture.ts";

/** A night makes more of them. */
const CLONES = Number(process.env["FLOTILLA_TEST_CLONES"] ?? 6);
/** The most that start at the same time. */
const AT_ONCE = 2;
const A = machineIdOf("a");
const SIZE = { cpus: 2, memoryMb: 512 };

/** Answers each connection with what its generators give; with an argument, it reseeds them on a signal. */
const PYTHON = `
import json, os, random, secrets, signal, socketserver, ssl, sys
_, port, *follows = sys.argv
def reseed(*_):
    random.seed()
    ssl.RAND_add(os.urandom(32), 32)
class Draw(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(json.dumps({
            "random": "%032x" % random.getrandbits(128), "OpenSSL": ssl.RAND_bytes(16).hex(),
            "os.urandom": os.urandom(16).hex(), "secrets": secrets.token_hex(16),
        }).encode())
if follows:
    signal.signal(signal.SIGUSR1, reseed)
    with open(f"/run/flotilla/branch-signals/{os.getpid()}", "w") as file: file.write("USR1")
random.random(), ssl.RAND_bytes(1)
socketserver.TCPServer(("127.0.0.1", int(port)), Draw).serve_forever()
`;

/** As that; Node.js cannot reseed its generator, so bytes of it are mixed with the machine's generation. */
const NODE = `
const { createHash, randomBytes } = require("node:crypto");
const { readFileSync } = require("node:fs");
randomBytes(1);
const mixed = () => createHash("sha256").update(readFileSync("/run/flotilla/generation")).update(randomBytes(32));
require("node:net").createServer((socket) => socket.end(JSON.stringify({
  randomBytes: randomBytes(16).toString("hex"), mixed: mixed().digest("hex"),
}))).listen(7003, "127.0.0.1");
`;

const PROGRAMS = {
  7001: "python3 /workspace/draw.py 7001",
  7002: "python3 /workspace/draw.py 7002 follows",
  7003: "node /workspace/draw.js",
} as const;

/** A secret of a machine, made by a hook of it. */
const SECRET = "/workspace/secret";
const HOOK: GuestHook = { command: ["sh", "-c", `openssl rand -hex 16 >${SECRET}`], timeoutMs: 60_000 };

/** Prints a line for each part of what a machine draws. */
const DRAW = [
  'for cpu in 0 1; do taskset -c $cpu od -An -N16 -tx1 /dev/urandom | tr -d " \\n"; echo; done',
  "tr -d - </proc/sys/kernel/random/uuid",
  "openssl rand -hex 16",
  `cat ${SECRET}`,
  ...Object.keys(PROGRAMS).map((port) => `exec 3<>/dev/tcp/127.0.0.1/${port}; cat <&3; echo`),
].join("\n");

interface Drawn {
  readonly kernel: readonly string[];
  readonly command: string;
  readonly hook: string;
  readonly idle: Readonly<Record<string, string>>;
  readonly reseeding: Readonly<Record<string, string>>;
  readonly node: Readonly<Record<string, string>>;
}

function parse(text: string): Drawn {
  const [first = "", second = "", uuid = "", command = "", hook = "", ...programs] = text.trim().split("\n");
  const [idle, reseeding, node] = programs.map((line) => JSON.parse(line));
  return { kernel: [first, second, uuid], command, hook, idle, reseeding, node };
}

describe("random bytes in clones are different", { skip: skipReason }, () => {
  let place: NodePlace;
  let node: BranchNode;
  /** By the source, then by its clones. */
  const drawn: Drawn[] = [];

  const run = (machineId: string, line: string): Promise<string> => shell(node.guestOf(machineId), line);

  before(async () => {
    const makeRoot = await debianRoot((tree) => {
      writeFileSync(`${tree}/workspace/draw.py`, PYTHON);
      writeFileSync(`${tree}/workspace/draw.js`, NODE);
    });
    place = new NodePlace({ makeRoot });
    node = await startBranchNode(place, await place.driver());
    const observed = await node.want(A, 1, "running", { spec: { ...SIZE, hostname: "source" } });
    assert.equal(observed.state, "running", observed.reason ?? "");
    await run(A, HOOK.command.at(-1) ?? "");
    for (const [port, line] of Object.entries(PROGRAMS)) {
      await shellInBackground(node.guestOf(A), `exec ${line} >/workspace/said.${port} 2>&1`);
      const isOpen = `(exec 3<>/dev/tcp/127.0.0.1/${port}) 2>/dev/null`;
      const wait = `for i in {1..600}; do ${isOpen} && exit 0; sleep 0.1; done; cat /workspace/said.${port}; exit 1`;
      await run(A, `bash -c '${wait}'`);
    }
    const { pointId } = await node.point(A);
    const draw = async (machineId: string): Promise<void> => {
      drawn.push(parse(await run(machineId, `bash -c '${DRAW}'`)));
    };
    await draw(A);
    const start = async (): Promise<void> => {
      const machineId = `mach-${randomBytes(16).toString("hex")}`;
      const point = { pointId, hasMemory: true };
      const spec = { ...SIZE, hostname: "clone", hooks: { fork: HOOK }, point };
      const { state, reason } = await node.want(machineId, 1, "running", { spec });
      assert.equal(state, "running", reason ?? "");
      await draw(machineId);
    };
    let left = CLONES;
    const several = async (): Promise<void> => {
      while (left-- > 0) await start();
    };
    await Promise.all(Array.from({ length: AT_ONCE }, several));
    await node.branches.release(pointId);
  });
  after(async () => {
    await node?.fleet.release();
    await place?.[Symbol.asyncDispose]();
  });

  /** All of them, from all machines, are different and have at least 128 bits. */
  function assertDifferent(what: string, values: readonly (string | undefined)[]): void {
    assert.ok(
      values.every((value) => /^[0-9a-f]{32,}$/.test(value ?? "")),
      `${what}: ${values.join(" ")}`,
    );
    assert.equal(new Set(values).size, values.length, `${what}: ${values.join(" ")}`);
  }

  test("the kernel's are, on each processor, and so are those of programs that ask it each time", () => {
    assertDifferent(
      "kernel",
      drawn.flatMap(({ kernel }) => kernel),
    );
    assertDifferent(
      "a new process",
      drawn.map(({ command }) => command),
    );
    for (const what of ["os.urandom", "secrets"])
      assertDifferent(
        what,
        drawn.map(({ idle }) => idle[what]),
      );
  });

  test("those of a program that reseeds at the signal it asked for are, in Python and OpenSSL", () => {
    for (const what of ["random", "OpenSSL"])
      assertDifferent(
        what,
        drawn.map(({ reseeding }) => reseeding[what]),
      );
  });

  test("those of a program that mixes the generation in are, in Node.js", () => {
    assertDifferent(
      "Node.js",
      drawn.map(({ node }) => node["mixed"]),
    );
  });

  test("what a fork hook makes is", () => {
    assertDifferent(
      "hook",
      drawn.map(({ hook }) => hook),
    );
  });

  test("a program that does nothing draws the same bytes in several machines", () => {
    const given = (draws: readonly (string | undefined)[]): number => new Set(draws).size;
    assert.equal(given(drawn.map(({ idle }) => idle["random"])), 1, "random");
    // OpenSSL reseeds after minutes, so the last of many clones may differ.
    assert.ok(given(drawn.map(({ idle }) => idle["OpenSSL"])) < drawn.length, "OpenSSL");
    assert.ok(given(drawn.map(({ node }) => node["randomBytes"])) < drawn.length, "Node.js");
  });
});

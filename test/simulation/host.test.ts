/**
 * What the system gives to programs of a simulation follows virtual time, and does not outlive their world.
 */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";
import { queryObjects } from "node:v8";
import { Pool } from "undici";
import { Fences } from "./fences.ts";
import { Files } from "./files.ts";
import { setHost } from "./host.ts";
import { Network } from "./network.ts";
import type { SimulatedNode } from "./node.ts";
import { Program, World } from "./world.ts";

// Not within a test: a function keeps what those beside it use.
const ignore = (): void => undefined;

test("nothing keeps a world that is over", async () => {
  const never = new AbortController();
  const live = (): NodeJS.Timeout => {
    const world = new World(1);
    const program = new Program(world, "server", "server-1");
    const timer = world.as(program, () => {
      void world.clockOf(program).sleep(1_000, AbortSignal.any([never.signal]));
      // tidy-allow timer: as one of an idle connection
      return setTimeout(ignore, 60_000);
    });
    world.close();
    return timer;
  };
  const timer = live();
  await new Promise(setImmediate);
  const count = queryObjects(World);
  clearTimeout(timer);
  assert.equal(count, 0);
});

test("a deadline of a program passes in virtual time", async () => {
  const world = new World(1);
  setHost({ world, files: new Files(world), network: new Network(world) });
  const signal = world.as(new Program(world, "server", "server-1"), () => AbortSignal.timeout(10_000));
  await world.until(9_999);
  assert.equal(signal.aborted, false);
  await world.until(2);
  assert.equal(signal.aborted, true);
  assert.equal((signal.reason as Error).name, "TimeoutError");
  setHost(null);
});

test("timers of packages pass in virtual time, and die with their program", async () => {
  const world = new World(1);
  setHost({ world, files: new Files(world), network: new Network(world) });
  const rung: string[] = [];
  const [first, second] = ["server-1", "server-2"].map((name) => {
    const program = new Program(world, "server", name);
    // tidy-allow timer: as undici's
    const timer = world.as(program, () => setTimeout((what: string) => rung.push(`${name} ${what}`), 10_000, "rang"));
    return { program, timer };
  }) as [{ program: Program; timer: NodeJS.Timeout }, { program: Program; timer: NodeJS.Timeout }];
  await world.until(6_000);
  first.timer.refresh();
  await world.until(4_001);
  assert.deepEqual(rung, ["server-2 rang"]);
  second.timer.refresh();
  second.program.kill();
  await world.until(5_999);
  assert.deepEqual(rung, ["server-2 rang", "server-1 rang"]);
  await world.until(20_000);
  assert.equal(rung.length, 2);
  setHost(null);
});

test("undici waits for an answer in virtual time", async () => {
  const world = new World(1);
  const network = new Network(world);
  const files = new Files(world);
  setHost({ world, files, network });
  const node = new Program(world, "node", "node-1");
  const server = new Program(world, "server", "server-1");
  const path = "/simulated/socket";
  files.makeDirectories("/simulated");
  world.as(node, () => createServer(ignore).listen({ path }, ignore));
  await world.settle();
  const failures: unknown[] = [];
  world.as(server, () => {
    const pool = new Pool("http://node-1", { connect: { socketPath: path } });
    pool
      .request({ method: "GET", path: "/", headersTimeout: 15_000 })
      .catch((reason: unknown) => failures.push(reason));
  });
  await world.until(14_000);
  assert.deepEqual(failures, []);
  await world.until(2_000);
  assert.deepEqual(
    failures.map((reason) => (reason as Error).name),
    ["HeadersTimeoutError"],
  );
  setHost(null);
});

test("a program that was stopped does later what it missed, in order, and not what was canceled", async () => {
  const world = new World(1);
  const program = new Program(world, "node", "node-1");
  const done: string[] = [];
  world.after(20, program, () => done.push("second"));
  world.after(10, program, () => done.push("first"));
  const canceled = world.after(15, program, () => done.push("canceled"));
  program.stop();
  world.after(30, null, () => done.push("of another"));
  await world.until(40);
  assert.deepEqual(done, ["of another"]);
  canceled.cancel();
  program.continue();
  await world.until(1);
  assert.deepEqual(done, ["of another", "first", "second"]);
  world.close();
});

test("a timer of a host's kernel ends a VM at its time on the host's clock, and no later renewal brings it back", async () => {
  const world = new World(1);
  const ended: number[] = [];
  const node = { name: "node-1", rate: 1.01, bootedMsBefore: 500 } as SimulatedNode;
  const fences = new Fences(world, [node], () => ended.push(world.now));
  const vm = { bootId: "boot", machineId: "machine", node: "node-1", to: null };
  fences.acknowledged("node-1", 0);
  fences.set(vm, 500 + 10_000 * 1.01);
  fences.set(vm, 500 + 12_000 * 1.01);
  await world.until(11_999);
  assert.deepEqual(ended, []);
  await world.until(2);
  assert.deepEqual([ended.map(Math.round), fences.ended.has("boot")], [[12_000], true]);
  assert.equal(world.violation, null);
  fences.set({ ...vm, bootId: "other" }, 500 + 21_100 * 1.01);
  assert.match(String(world.violation), /the fence of machine machine on node-1 ends 21\.1 s after/);
  world.close();
});

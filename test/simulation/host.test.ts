/**
 * What the system gives to programs of a simulation follows virtual time, and does not outlive their world.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { queryObjects } from "node:v8";
import { Files } from "./files.ts";
import { setHost } from "./host.ts";
import { Network } from "./network.ts";
import { Program, World } from "./world.ts";

// Not within a test: a function keeps what those beside it use.
const ignore = (): void => undefined;
const connectTimeout = (): Error => Object.assign(new Error("too late"), { code: "UND_ERR_CONNECT_TIMEOUT" });

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

test("a timer of the host ends no connection", () => {
  const world = new World(1);
  const network = new Network(world);
  const end = world.as(new Program(world, "server", "server-1"), () => network.connect("/simulated/node-1/socket"));
  end.on("error", ignore);
  assert.equal(end.destroy(connectTimeout()).destroyed, false);
  assert.equal(end.destroy(new Error("broken")).destroyed, true);
});

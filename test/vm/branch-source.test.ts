/**
 * The source of points keeps its network and its callers, and runs on with its disk when its agent is killed
 * at any step of a point.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { MadePoint } from "@flotilla/contract/link/points";
import { type Flotilla, startFlotilla } from "../support/flotilla.ts";
import { callAgent } from "../support/link-call.ts";
import { vmmsOf } from "../support/node-on-host.ts";
import { until } from "../support/until.ts";
import { serveUpgrades, Upgraded } from "../support/upgraded.ts";
import { skipReason } from "./vm-fixture.ts";

const LONG = { deadlineMs: 60_000 };
const POINTS = 5;

describe("the source of points", { skip: skipReason }, () => {
  let flotilla: Flotilla;
  let id: string;
  let bootId: string;

  before(async () => {
    flotilla = await startFlotilla({ driver: "qemu" });
    const resources = { cpus: 1, memoryMb: 128, diskGb: 1 };
    ({ id } = await flotilla.create({ resources, ports: [{ port: 80 }] }));
    await flotilla.start(id);
    bootId = (await flotilla.exec(id, "cat /proc/sys/kernel/random/boot_id")).trim();
    await flotilla.exec(id, "(while :; do date +%N >/dev/shm/beat; sleep 0.1; done) >/dev/null 2>&1 & :");
  });
  after(() => flotilla?.[Symbol.asyncDispose]());

  const newPoint = (): string => `point-${randomBytes(16).toString("hex")}`;
  const path = (pointId: string): string => `/v1/points/${pointId}`;
  const make = (pointId: string): Promise<MadePoint> =>
    callAgent(flotilla.nodeDirectory(), path(pointId), { machineId: id, hasMemory: true }, "PUT") as Promise<MadePoint>;
  const pointsDirectory = (): string => join(flotilla.nodeDirectory(), "points");

  /** Runs a program in the network namespace of the machine's VMM. */
  function inside(...argv: readonly string[]): string {
    const { pid } = vmmsOf(flotilla.nodeDirectory()).find(({ machines }) => machines.includes(id)) ?? {};
    return execFileSync("nsenter", [`--net=/proc/${pid}/ns/net`, ...argv], { encoding: "utf8" });
  }

  /** Links, addresses, routes and neighbours. */
  const network = (): readonly string[] => [
    ...["link", "address", "route"].map((what) => inside("ip", "-o", what).replace(/qlen \d+/g, "")),
    inside("ip", "-o", "neighbour").replace(/(REACHABLE|STALE|DELAY|PROBE)/g, ""),
  ];

  test("its network is the same, and its connections continue, over many points", async () => {
    await serveUpgrades(flotilla, id, 80);
    const upgraded = await Upgraded.open(flotilla, { id, port: 80, path: "/echo" });
    const before = network();
    for (let count = 0; count < POINTS; count += 1) {
      const pointId = newPoint();
      assert.equal((await make(pointId)).pointId, pointId);
      await callAgent(flotilla.nodeDirectory(), path(pointId), {}, "DELETE");
      await upgraded.haveMore(10_000);
    }
    assert.deepEqual(network(), before);
    await upgraded.finish();
  });

  /** What there is when the agent is killed, in the order in which it appears. */
  const STEPS = {
    "the disk is on top": (pointId: string) =>
      readFileSync(join(flotilla.nodeDirectory(), "machines", id, "journal.json"), "utf8").includes(pointId),
    "memory is copied": (pointId: string) => existsSync(join(pointsDirectory(), pointId, "pages")),
    "memory is written": (pointId: string) => existsSync(join(pointsDirectory(), pointId, "memory.new")),
    "the point exists": (pointId: string) => existsSync(join(pointsDirectory(), pointId, "point.json")),
  } as const;

  for (const [step, isReached] of Object.entries(STEPS))
    test(`an agent that is killed when ${step} leaves a machine that runs, and no half point`, async () => {
      await flotilla.exec(id, `echo '${step}' >>/workspace/steps`);
      const pointId = newPoint();
      const answer = make(pointId).catch(() => undefined);
      await until(() => isReached(pointId), { what: step, everyMs: 1, ...LONG });
      await flotilla.nodes[0]?.kill();
      await flotilla.startNode();
      await answer;
      const beat = (): Promise<string> => flotilla.exec(id, "cat /proc/sys/kernel/random/boot_id /dev/shm/beat");
      const [boot, count] = (await until(beat, { what: "the node to report", ...LONG })).split("\n");
      assert.equal(boot, bootId);
      await until(async () => (await beat()) !== `${boot}\n${count}\n`, { what: "its programs to run", ...LONG });
      const files = existsSync(join(pointsDirectory(), pointId)) ? readdirSync(join(pointsDirectory(), pointId)) : [];
      assert.ok(files.includes("point.json") || files.every((name) => name === "disk.qcow2"), files.join(" "));
    });

  test("it has its files when it boots after all that, and another point can be made", async () => {
    assert.match((await make(newPoint())).pointId, /^point-/);
    await flotilla.stop(id);
    await flotilla.start(id);
    assert.equal(await flotilla.exec(id, "cat /workspace/steps"), `${Object.keys(STEPS).join("\n")}\n`);
  });
});

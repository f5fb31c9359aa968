/**
 * The story of a program with sandboxes in a real machine, through the newest version of E2B's client that is
 * installed. test/e2b has it for the others. The image of the template is made when the first sandboxes need
 * it.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { Sandbox } from "e2b";
import { startGateway } from "../../gateway/e2b/src/gateway.ts";
import { createLog } from "../../server/src/log.ts";
import { installDebianMaker } from "../e2b/debian-maker.ts";
import { e2bEnvironment } from "../e2b/fixture.ts";
import { playStory } from "../e2b/story.ts";
import { startFlotilla } from "../support/flotilla.ts";
import { debianArchive } from "../support/images.ts";
import { skipReason } from "./vm-fixture.ts";

const WEB_PORT = 8123;

test("a program that uses E2B's client finds what it expects", { skip: skipReason }, async () => {
  await using flotilla = await startFlotilla({ driver: "qemu" });
  const url = flotilla.urls[0] ?? "";
  const key = flotilla.client().key ?? "";
  const listen = { host: "127.0.0.1", port: 0 };
  const dataDirectory = flotilla.directory;
  const maker = await installDebianMaker(dataDirectory, await debianArchive());
  await maker.release();
  const parts = { secret: Buffer.alloc(32, 1), dataDirectory, clock: systemClock, log: createLog("warn") };
  const gateway = await startGateway({ url, listen, domain: null, ...parts });
  try {
    e2bEnvironment(gateway.url, key);
    const [other, calls] = await Promise.all([
      Sandbox.create(),
      playStory(Sandbox, { create: {}, url: gateway.url, webPort: WEB_PORT }),
    ]);
    assert.equal((await maker.runs()).length, 1);
    await other.kill();
    assert.ok(calls > 40, `${calls} calls`);
  } finally {
    await gateway.close();
  }
});

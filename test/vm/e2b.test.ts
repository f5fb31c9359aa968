/**
 * The story of a program with sandboxes in a real machine, through the newest version of E2B's client that is
 * installed. test/e2b has it for the others.
 */
import assert from "node:assert/strict";
import { createReadStream } from "node:fs";
import { Readable } from "node:stream";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { Flotilla as Client } from "@flotilla/sdk";
import { Sandbox } from "e2b";
import { startGateway } from "../../gateway/e2b/src/gateway.ts";
import { createLog } from "../../server/src/log.ts";
import { e2bEnvironment } from "../e2b/fixture.ts";
import { playStory } from "../e2b/story.ts";
import { startFlotilla } from "../support/flotilla.ts";
import { debianArchive } from "../support/images.ts";
import { skipReason } from "./vm-fixture.ts";

const IMAGE = "local/e2b-story";
const WEB_PORT = 8123;

test("a program that uses E2B's client finds what it expects", { skip: skipReason }, async () => {
  await using flotilla = await startFlotilla({ driver: "qemu" });
  const url = flotilla.urls[0] ?? "";
  const key = flotilla.client().key ?? "";
  const image = Readable.toWeb(createReadStream(await debianArchive())) as ReadableStream<Uint8Array>;
  await new Client({ url, apiKey: key }).importImage(image, { query: { reference: IMAGE } });
  const listen = { host: "127.0.0.1", port: 0 };
  const parts = { secret: Buffer.alloc(32, 1), clock: systemClock, log: createLog("warn") };
  const gateway = await startGateway({ url, listen, domain: null, ...parts });
  try {
    e2bEnvironment(gateway.url, key);
    const calls = await playStory(Sandbox, { create: { template: IMAGE }, url: gateway.url, webPort: WEB_PORT });
    assert.ok(calls > 40, `${calls} calls`);
  } finally {
    await gateway.close();
  }
});

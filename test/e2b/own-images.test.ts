/**
 * The images of E2B's own templates are made when they are needed: once for all who wait, again after a
 * failure, and only with an operator's key.
 */
import assert from "node:assert/strict";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { type Clock, systemClock } from "@flotilla/base/clock";
import { OwnImages } from "../../gateway/e2b/src/own-images.ts";
import { Refused } from "../../gateway/e2b/src/refused.ts";
import { createLog } from "../../server/src/log.ts";
import { type Flotilla, startFlotilla } from "../support/flotilla.ts";
import { until } from "../support/until.ts";
import { type DebianMaker, installDebianMaker } from "./debian-maker.ts";

const KIND = "e2b-base";
/** No caller waits. */
const impatient: Clock = { ...systemClock, sleep: () => Promise.resolve() };

let flotilla: Flotilla;
let directory: string;
let maker: DebianMaker;

before(async () => {
  directory = await mkdtemp(join(tmpdir(), "flotilla-e2b-"));
  await writeFile(join(directory, "archive"), "a root file system");
  maker = await installDebianMaker(directory, join(directory, "archive"));
  flotilla = await startFlotilla();
});

after(async () => {
  await flotilla[Symbol.asyncDispose]();
  await rm(directory, { recursive: true });
});

const imagesWith = (clock: Clock): OwnImages =>
  new OwnImages({ url: flotilla.urls[0] ?? "", dataDirectory: directory, clock, log: createLog("silent") });

const refusal = (making: Promise<void>): Promise<Refused> =>
  making.then(
    () => assert.fail("it is there"),
    (error: unknown) => (error instanceof Refused ? error : assert.fail(String(error))),
  );

const leftovers = (): Promise<readonly string[]> => readdir(join(directory, "e2b-images"));

test("an image is made with an operator's key only, once, and again after a failure", async () => {
  const client = flotilla.client();
  const operator = client.key ?? "";
  const { key } = (await client.post("/v1/apikeys", { scopes: ["machine:create"] })).json as { key: string };
  const [images, hasty] = [imagesWith(systemClock), imagesWith(impatient)];

  const unable = await refusal(images.require(KIND, key));
  assert.deepEqual([unable.status, /image make-local e2b-base/.test(unable.message)], [404, true]);
  assert.deepEqual(await maker.runs(), []);

  const killed = refusal(images.require(KIND, operator));
  await until(async () => (await maker.runs()).length === 1, { what: "the script to run" });
  const [pid = 0] = await maker.runs();
  process.kill(pid, "SIGKILL");
  assert.equal((await killed).status, 503);

  const late = await refusal(hasty.require(KIND, operator));
  assert.deepEqual([late.status, late.headers["retry-after"]], [503, "15"]);
  await until(async () => /now: installing essential/.test((await refusal(hasty.require(KIND, operator))).message), {
    what: "the answer to say what is done",
  });
  // Another gateway with the same directory takes its turn.
  const both = [images.require(KIND, operator), images.require(KIND, operator)];
  await maker.release();
  await Promise.all(both);
  const count = (await maker.runs()).length;
  assert.ok(count === 2 || count === 3, `${count} runs`);
  await until(async () => (await leftovers()).join() === `${KIND}.lock`, { what: "the archive to be removed" });
});

test("a gateway that stops ends what it makes", async () => {
  const stopped = await mkdtemp(join(tmpdir(), "flotilla-e2b-"));
  const unreleased = await installDebianMaker(stopped, "none");
  const url = flotilla.urls[0] ?? "";
  const images = new OwnImages({ url, dataDirectory: stopped, clock: systemClock, log: createLog("silent") });
  const ended = refusal(images.require(KIND, flotilla.client().key ?? ""));
  await until(async () => (await unreleased.runs()).length === 1, { what: "the script to run" });
  images.close();
  assert.equal((await ended).status, 503);
  assert.deepEqual(await readdir(join(stopped, "e2b-images")), [`${KIND}.lock`]);
  await rm(stopped, { recursive: true });
});

/**
 * Parts of logs over HTTP, of a machine and of an app, through real node agents with the fake driver: by
 * cursor, by time, searched, as a file, while the log grows and its oldest lines are removed.
 */
import assert from "node:assert/strict";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "../../test/support/until.ts";
import { startMachineServer } from "./support/machine-server.ts";

const { client, node, machine: create } = await startMachineServer();

interface LogRecord {
  readonly timestamp: string;
  readonly message: string;
  readonly source: string;
  readonly cursor: string;
  readonly instanceId?: string;
}

interface LogMark {
  readonly cursor: string;
  readonly edge?: "start" | "trimmed" | "end";
  readonly isCut?: true;
}

interface Part {
  readonly lines: readonly LogRecord[];
  readonly first: LogMark;
  readonly last: LogMark;
  readonly texts: readonly string[];
}

async function part(path: string, query: Readonly<Record<string, string | number>>): Promise<Part> {
  const asked = new URLSearchParams({ format: "json", cursors: "true" });
  for (const [name, value] of Object.entries(query)) asked.set(name, String(value));
  const answer = await client.get(`${path}/logs?${asked}`);
  assert.equal(answer.status, 200, answer.text);
  const records = answer.text
    .split("\n\n")
    .map((event) => event.trim())
    .filter((event) => event !== "")
    .map((event) => JSON.parse(event.slice("data: ".length)) as LogRecord & LogMark);
  const lines = records.filter((record) => record.message !== undefined);
  const marks = records.filter((record) => record.message === undefined);
  assert.equal(records[0]?.message, undefined, "a mark comes first");
  assert.equal(records.at(-1)?.message, undefined, "and last");
  const [first] = marks;
  const last = marks.at(-1);
  assert.ok(first !== undefined && last !== undefined);
  return { lines, first, last, texts: lines.map(({ message }) => message) };
}

const refused = async (path: string, query: string, reason: RegExp): Promise<void> => {
  const answer = await client.get(`${path}/logs?${query}`);
  assert.equal(answer.status, 400, `${query}: ${answer.status} ${answer.text}`);
  assert.match(answer.text, reason, query);
};

/** A machine whose workload has ended after these commands. */
async function written(commands: string): Promise<string> {
  const id = await create({ command: ["sh", "-c", commands] });
  await client.post(`/v1/machines/${id}/start`);
  const path = `/v1/machines/${id}`;
  await until(async () => (await part(path, { tail: 1 })).texts[0]?.startsWith("the workload ended") === true, {
    what: "the end of the workload",
    deadlineMs: 60_000,
  });
  return path;
}

const numbers = (first: number, count: number, text = (at: number): string => `line ${at}`): readonly string[] =>
  Array.from({ length: count }, (_, at) => text(first + at));

test("a log is read backwards to its start and forwards to its end, each line once", async () => {
  const path = await written("lines 2500 0 line #");
  const end = await part(path, { tail: 100 });
  assert.deepEqual(end.texts, [...numbers(2_401, 99), "the workload ended with exit code 0"]);
  assert.equal(end.last.edge, "end");
  assert.equal(end.first.edge, undefined);
  let backwards: readonly string[] = end.texts;
  for (let mark = end.first, pages = 0; mark.edge === undefined; pages += 1) {
    assert.ok(pages < 10, "it ends");
    const { first, texts, last } = await part(path, { tail: 700, before: mark.cursor });
    assert.equal(last.cursor, mark.cursor);
    backwards = texts.concat(backwards);
    mark = first;
  }
  assert.deepEqual(backwards.slice(0, -1), numbers(0, 2_500));
  const forwards: string[] = [];
  for (let cursor = "0:0", isEnd = false, pages = 0; !isEnd; pages += 1) {
    assert.ok(pages < 10, "it ends");
    const { texts, last } = await part(path, { limit: 700, after: cursor });
    forwards.push(...texts);
    cursor = last.cursor;
    isEnd = last.edge === "end";
  }
  assert.deepEqual(forwards, backwards);
  const [, second] = (await part(path, { limit: 2, after: "0:0" })).lines;
  assert.deepEqual((await part(path, { limit: 1, after: second?.cursor ?? "" })).texts, ["line 1"]);
});

test("a time is an inclusive beginning and an exclusive end", async () => {
  const path = await written("lines 30 100 at #");
  const { lines } = await part(path, { after: "0:0" });
  const middle = lines.at(15);
  assert.ok(middle !== undefined);
  const from = await part(path, { from: middle.timestamp });
  assert.deepEqual(
    from.texts,
    lines.filter(({ timestamp }) => timestamp >= middle.timestamp).map(({ message }) => message),
  );
  const to = await part(path, { after: "0:0", to: middle.timestamp });
  assert.deepEqual(
    [...to.texts, ...from.texts],
    lines.map(({ message }) => message),
  );
  assert.equal(to.last.edge, undefined, "there are lines after it");
  assert.equal((await part(path, { from: "2200-01-01T00:00:00Z" })).texts.length, 0);
  assert.equal((await part(path, { from: "1969-01-01T00:00:00Z", limit: 1 })).texts[0], "at 0");
});

test("a search finds a text in either direction, whatever its case, and is not an expression", async () => {
  const path = await written("lines 3000 0 'GET /item/# (a+)+$ Größe'; echo the needle; lines 100 0 more #");
  assert.equal((await part(path, { after: "0:0", search: "größe" })).texts.length, 3_000);
  assert.equal((await part(path, { after: "0:0", search: "(A+)+$" })).texts.length, 3_000);
  assert.equal((await part(path, { after: "0:0", search: ".*" })).texts.length, 0);
  const found = await part(path, { after: "0:0", search: "NEEDLE", limit: 1 });
  assert.deepEqual(found.texts, ["the needle"]);
  assert.deepEqual((await part(path, { after: found.lines[0]?.cursor ?? "", limit: 2 })).texts, [
    "the needle",
    "more 0",
  ]);
  // The next one after it, and the one before.
  assert.deepEqual((await part(path, { after: found.last.cursor, search: "item/7", limit: 1 })).texts, []);
  const before = await part(path, { before: found.lines[0]?.cursor ?? "", search: "item/7", tail: 2 });
  assert.deepEqual(
    before.texts.map((text) => text.split(" ")[1]),
    ["/item/798", "/item/799"].map((_, at) => `/item/${798 + at}`),
  );
  const earlier = await part(path, { before: before.lines[0]?.cursor ?? "", search: "item/2999", tail: 1 });
  assert.deepEqual([earlier.texts, earlier.first.edge], [[], "start"]);
});

test("lines that are removed while a part is read are said to be missing", async () => {
  const path = await written("lines 10 0 first #");
  const { first } = await part(path, { after: "0:0" });
  const [, , , id = ""] = path.split("/");
  assert.equal(first.edge, "start");
  // The node reads its directory again after a restart.
  await node.kill();
  const logs = join(node.directory, "node", "machines", id, "logs");
  await writeFile(join(logs, "3"), "1700000000000 boot 1 o third\n");
  await writeFile(join(logs, "4"), "1700000001000 boot 2 o fourth\nhalf a l");
  await rm(join(logs, "1"));
  await node.restart();
  const after = await part(path, { after: first.cursor });
  assert.deepEqual(after.texts, ["third", "fourth"]);
  assert.deepEqual([after.first.edge, after.first.isCut], ["trimmed", true]);
  const whole = await part(path, { tail: 10 });
  assert.deepEqual([whole.first.edge, whole.first.isCut], ["trimmed", undefined]);
});

test("a follower continues after a cursor, and learns cursors as it reads", async () => {
  const path = await written("lines 20 0 line #");
  const seen = await part(path, { after: "0:0", limit: 15 });
  const rest = await part(path, { after: seen.last.cursor });
  assert.deepEqual(rest.texts.slice(0, 5), numbers(15, 5));
  assert.deepEqual((await part(path, { after: rest.last.cursor })).texts, []);
});

test("a plain log is a file with times, of any length", async () => {
  const path = await written("lines 20000 0 line #");
  const answer = await client.get(`${path}/logs?format=plain&from=1970-01-01T00:00:00Z`);
  assert.equal(answer.headers.get("content-type"), "text/plain; charset=utf-8");
  assert.match(answer.headers.get("content-disposition") ?? "", /^attachment; filename="mach-[0-9a-f]+\.log"$/);
  const lines = answer.text.split("\n");
  assert.equal(lines.length, 20_002);
  assert.match(lines[0] ?? "", /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z line 0$/);
  assert.match(lines[20_000] ?? "", / flotilla: the workload ended with exit code 0$/);
});

test("what contradicts itself, is not a cursor or asks for too much is refused with the parameter", async () => {
  const path = await written("echo one");
  await refused(path, "after=1", /after/);
  await refused(path, "after=1:2:3", /after/);
  await refused(path, "before=../../etc", /before/);
  await refused(path, "after=1:99999999999999999999", /after/);
  await refused(path, "after=1:2&from=2026-01-01T00:00:00Z", /after/);
  await refused(path, "before=1:2&to=2026-01-01T00:00:00Z", /before/);
  await refused(path, "from=yesterday", /from/);
  await refused(path, "to=2026-02-30T00:00:00Z", /to/);
  await refused(path, "limit=5", /limit/);
  await refused(path, "follow=true&limit=5&after=1:0", /follow/);
  await refused(path, "follow=true&before=1:0", /follow/);
  await refused(path, "follow=true&format=plain", /follow/);
  await refused(path, "cursors=true", /cursors/);
  await refused(path, `search=${"x".repeat(201)}`, /search/);
  // Positions that are nowhere in the log are places all the same.
  for (const cursor of ["1:3", "1:999999", "999999:0", "0:5", "999999999999999:999999999999999"]) {
    for (const query of [{ after: cursor }, { before: cursor, tail: 5 }, { after: cursor, search: "o", limit: 3 }]) {
      const { texts } = await part(path, query);
      for (const text of texts) assert.match(text, /^(one|the workload ended with exit code 0)$/, cursor);
    }
  }
});

test("a machine that never ran has a log without lines, and its cursors are good later", async () => {
  const id = await create({ command: ["sh", "-c", "echo late"] });
  const path = `/v1/machines/${id}`;
  const { texts, first, last } = await part(path, { tail: 5 });
  assert.deepEqual([texts, first.edge, last.edge], [[], "start", "end"]);
  await client.post(`/v1/machines/${id}/start`);
  await until(async () => (await part(path, { after: last.cursor })).texts[0] === "late", { what: "its line" });
});

test("the log of an app is read in parts over all instances, each line once and in order", async () => {
  const FAKE_IMAGE = Array.from({ length: 40 }, (_, at) => `line ${at}`).join("\n");
  const deployed = await client.post("/v1/apps", {
    name: "parts",
    image: "local/speaks",
    replicas: 3,
    memoryMb: 256,
    port: 80,
    env: [{ key: "FAKE_IMAGE", value: FAKE_IMAGE }],
  });
  assert.equal(deployed.status < 300, true, deployed.text);
  const path = "/v1/apps/parts";
  await until(
    async () => (await part(path, { tail: 1_000 })).lines.filter(({ source }) => source === "workload").length === 120,
    {
      what: "the lines of all instances",
      deadlineMs: 60_000,
    },
  );
  const whole = await part(path, { tail: 1_000 });
  assert.deepEqual([whole.first.edge, whole.last.edge], ["start", "end"]);
  const key = ({ cursor }: LogRecord): string => cursor;
  const all = whole.lines.map(key);
  assert.equal(new Set(all).size, all.length, "each line has its own cursor");
  const times = whole.lines.map(({ timestamp }) => timestamp);
  assert.deepEqual(times, times.toSorted());
  // In pages that end in the middle of instances.
  let back: readonly string[] = [];
  for (let before: LogMark = whole.last, isStart = false, pages = 0; !isStart; pages += 1) {
    assert.ok(pages < 10, "it ends");
    const { lines, first } = await part(path, { before: before.cursor, tail: 37 });
    back = lines.map(key).concat(back);
    before = first;
    isStart = first.edge !== undefined;
  }
  assert.deepEqual(back, all);
  const forth: string[] = [];
  for (let after: LogMark = whole.first, isEnd = false, pages = 0; !isEnd; pages += 1) {
    assert.ok(pages < 10, "it ends");
    const { lines, last } = await part(path, { after: after.cursor, limit: 37 });
    forth.push(...lines.map(key));
    after = last;
    isEnd = last.edge === "end";
  }
  assert.deepEqual(forth, all);
  const found = await part(path, { after: whole.first.cursor, search: "LINE 39", limit: 2 });
  assert.deepEqual(found.texts, ["line 39", "line 39"]);
  assert.equal((await part(path, { before: whole.last.cursor, search: "line 3", tail: 100 })).texts.length, 33);
  // The cursor of one line is a place in the whole log.
  const [hit] = found.lines;
  const around = await part(path, { after: hit?.cursor ?? "", limit: 500 });
  assert.ok(around.lines.some(({ cursor }) => cursor === hit?.cursor));
  const plain = await client.get(`${path}/logs?format=plain&from=1970-01-01T00:00:00Z`);
  assert.equal(plain.text.split("\n").length - 1, all.length);
  assert.match(plain.text, /^\S+Z \[inst-[0-9a-f]+\] line 0$/m);
  await refused(path, "after=1:2", /after/);
  await refused(path, `after=1~${"0".repeat(32)}:x`, /after/);
  await refused(path, "limit=3", /limit/);
  // A machine of someone else in a cursor is ignored.
  const foreign = `0~${"0".repeat(32)}:1:0`;
  assert.equal((await part(path, { after: foreign })).lines.length, all.length);
  await client.delete("/v1/apps/parts");
});

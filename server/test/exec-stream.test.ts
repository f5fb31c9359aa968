/**
 * Streamed commands over HTTP, through a real node agent and a scripted guest: framing, status codes, readers
 * that are slow, never read or disconnect.
 */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { type ClientRequest, type IncomingMessage, request as httpRequest } from "node:http";
import { Readable } from "node:stream";
import { test } from "node:test";
import { Flotilla } from "../../sdk/src/client.ts";
import { readExecEvents } from "../../sdk/src/events.ts";
import { startMachineServer } from "./support/machine-server.ts";
import { until } from "../../test/support/until.ts";

const { server, node, client, machine } = await startMachineServer();
const MIB = 1024 * 1024;

const shared = await machine();
const stream = (body: object, id = shared) => client.post(`/v1/machines/${id}/exec/stream`, body);

/** A streamed command whose answer the test reads itself, or does not. */
async function open(body: object, query = "", id = shared): Promise<{ sent: ClientRequest; answer: IncomingMessage }> {
  const sent = httpRequest(`${server.url}/v1/machines/${id}/exec/stream${query}`, {
    method: "POST",
    headers: { authorization: `Bearer ${server.adminKey.key}` },
    agent: false,
  });
  sent.on("error", () => undefined);
  sent.end(JSON.stringify(body));
  const [answer] = (await once(sent, "response")) as [IncomingMessage];
  answer.on("error", () => undefined);
  return { sent, answer };
}

async function bytesOf(answer: IncomingMessage): Promise<number> {
  let bytes = 0;
  for await (const chunk of answer) bytes += (chunk as Buffer).length;
  return bytes;
}

test("output arrives as events in the documented framing, and exec with stream is the same", async () => {
  const body = { command: "echo hi; echo oh >&2; exit 3" };
  const expected =
    "event: stdout\ndata: hi\ndata: \n\nevent: stderr\ndata: oh\ndata: \n\n" + 'event: exit\ndata: {"exitCode":3}\n\n';
  const streamed = await stream(body);
  assert.equal(streamed.status, 200, streamed.text);
  assert.equal(streamed.headers.get("content-type"), "text/event-stream");
  assert.equal(streamed.text, expected);
  const same = await client.post(`/v1/machines/${shared}/exec`, { ...body, stream: true });
  assert.deepEqual([same.headers.get("content-type"), same.text], ["text/event-stream", expected]);
  const alone = await client.post(`/v1/machines/${shared}/exec`, { ...body, stream: false });
  assert.equal(alone.json.exitCode, 3);
});

test("the answer begins while a silent command runs, and output arrives when it is written", async () => {
  const { answer, sent } = await open({ command: "echo first; sleep 600" });
  const [chunk] = (await once(answer, "data")) as [Buffer];
  assert.equal(chunk.toString(), "event: stdout\ndata: first\ndata: \n\n");
  sent.destroy();
  const silent = await open({ command: ["sleep", "600"] });
  assert.equal(silent.answer.statusCode, 200);
  silent.sent.destroy();
});

test("a keep-alive every 15 seconds distinguishes a silent command from a dead connection", {
  timeout: 20_000,
}, async () => {
  const { answer, sent } = await open({ command: ["sleep", "600"] });
  const [chunk] = (await once(answer, "data")) as [Buffer];
  assert.equal(chunk.toString(), ":\n\n");
  sent.destroy();
});

test("there is no cap, and base64 is exact to the byte", async () => {
  const { answer } = await open({ command: ["head", "-c", String(24 * MIB), "/dev/zero"] }, "?output=b64");
  const response = new Response(Readable.toWeb(answer));
  let bytes = 0;
  let exitCode = null;
  for await (const event of readExecEvents(response)) {
    if (event.kind === "exit") exitCode = event.exitCode;
    else bytes += event.bytes.length;
  }
  assert.deepEqual([bytes, exitCode], [24 * MIB, 0]);
});

const FRAMES = { accept: "application/vnd.flotilla.exec-frames" };

test("a caller that accepts binary frames gets them from each endpoint that streams", async () => {
  const frame = (kind: number, text: string): string =>
    `${String.fromCharCode(kind)}\0\0\0\0\0\0${String.fromCharCode(text.length)}${text}`;
  const expected = frame(1, "hi\n") + frame(2, "oh\n") + frame(3, '{"exitCode":3}');
  const body = { command: "echo hi; echo oh >&2; exit 3", stream: true };
  const session = await client.post(`/v1/machines/${shared}/sessions`, {});
  for (const path of ["exec/stream", "exec", `sessions/${session.json.id}/exec`]) {
    const answer = await client.post(`/v1/machines/${shared}/${path}?output=text`, body, { headers: FRAMES });
    assert.deepEqual([answer.status, answer.headers.get("content-type")], [200, FRAMES.accept], path);
    assert.equal(answer.text, expected, path);
  }
  const collected = await client.post(`/v1/machines/${shared}/exec`, { command: "true" }, { headers: FRAMES });
  assert.equal(collected.headers.get("content-type"), "application/json");
  const refused = await client.post(`/v1/machines/${shared}/exec/stream`, { command: [""] }, { headers: FRAMES });
  assert.deepEqual([refused.status, refused.headers.get("x-error-code")], [400, "invalid_request"]);
});

test("the SDK streams frames without a cap, exact to the byte", async () => {
  const flotilla = new Flotilla({ url: server.url, apiKey: server.adminKey.key });
  const hash = createHash("sha256");
  let bytes = 0;
  let exitCode = null;
  for await (const event of await flotilla.streamExec(shared, {
    command: ["head", "-c", String(24 * MIB), "/dev/zero"],
  })) {
    if (event.kind === "exit") exitCode = event.exitCode;
    else {
      bytes += event.bytes.byteLength;
      hash.update(event.bytes);
    }
  }
  assert.deepEqual([bytes, exitCode], [24 * MIB, 0]);
  assert.equal(
    hash.digest("hex"),
    createHash("sha256")
      .update(Buffer.alloc(24 * MIB))
      .digest("hex"),
  );
});

test("a reader that never reads stops its own command and nothing else, in bounded memory", async () => {
  const memory = (): number => process.memoryUsage().rss;
  const before = memory();
  const stuck = await Promise.all(Array.from({ length: 8 }, () => open({ command: "yes" })));
  for (let round = 0; round < 20; round += 1) {
    const answer = await client.post(`/v1/machines/${shared}/exec`, { command: `echo ${round}` });
    assert.equal(answer.json.stdout, `${round}\n`);
  }
  // Eight times 64 MiB of `yes` are two GiB of events, if they were kept.
  assert.ok(memory() - before < 150 * MIB, `${Math.round((memory() - before) / MIB)} MiB more`);
  const [first, ...others] = stuck;
  for (const { sent } of others) sent.destroy();
  // A reader that begins late gets everything: seven bytes of framing for each line of two.
  assert.ok(first !== undefined && (await bytesOf(first.answer)) > 4 * 64 * MIB);
});

test("a reader that disconnects ends its command, unless it runs in the background", async () => {
  const id = await machine();
  const { sent, answer } = await open({ command: "echo on; sleep 600" }, "", id);
  await once(answer, "data");
  sent.destroy();
  const count = async (): Promise<number> => (await client.get(`/v1/machines/${id}/usage`)).json.usage.execCount;
  const background = await client.post(`/v1/machines/${id}/exec/stream`, { command: ["sleep", "9"], background: true });
  assert.match(background.text, /^event: stdout\ndata: pid=\d+\ndata: \n\nevent: exit\ndata: \{"exitCode":0\}\n\n$/);
  await until(async () => (await count()) === 1, { what: "the background command alone to count" });
});

test("a time limit ends a streamed command with 124, also without a reader", async () => {
  const late = await stream({ command: "echo on; sleep 600", timeoutSeconds: 1 });
  assert.match(late.text, /event: exit\ndata: \{"exitCode":124\}\n\n$/);
});

test("a command that cannot run is refused with a status, not with a stream", async () => {
  const broken = await machine({ env: { FAKE_BOOT_FAIL: "1" } });
  const deleted = await machine();
  await client.delete(`/v1/machines/${deleted}`);
  const refusals: readonly [object, string, number, string][] = [
    [{ command: [""] }, shared, 400, "invalid_request"],
    [{ command: [] }, shared, 422, "invalid_body"],
    [{ command: "true" }, deleted, 404, "not_found"],
    [{ command: "true" }, broken, 503, "start_failed"],
    [{ command: "true" }, broken, 409, "conflict"],
  ];
  for (const [body, id, status, code] of refusals) {
    const answer = await stream(body, id);
    assert.deepEqual([answer.status, answer.headers.get("x-error-code")], [status, code], answer.text);
  }
  const missing = await stream({ command: ["nope"] });
  assert.match(
    missing.text,
    /event: stderr\ndata: executable file 'nope' not found.*\ndata: \n\nevent: exit\ndata: .*255/,
  );
});

test("streamed commands are counted and shown on the timeline", async () => {
  const id = await machine();
  await stream({ command: "exit 4" }, id);
  await until(async () => (await client.get(`/v1/machines/${id}/usage`)).json.usage.execCount === 1);
  const events = (await client.get(`/v1/machines/${id}/events`)).json as { message: string }[];
  assert.ok(events.some(({ message }) => message.startsWith("exec ended with exit code 4")));
});

test("two hundred streams at once in one machine", async () => {
  const answers = await Promise.all(Array.from({ length: 200 }, (_, n) => stream({ command: ["echo", String(n)] })));
  assert.ok(answers.every(({ text }, n) => text.startsWith(`event: stdout\ndata: ${n}\n`) && text.includes("exit")));
});

test("a node that dies during a command is reported as an error event", async () => {
  const { answer } = await open({ command: "echo on; sleep 600" });
  let text = "";
  answer.on("data", (chunk: Buffer) => {
    text += chunk.toString();
  });
  await once(answer, "data");
  const ended = once(answer, "end");
  await node.kill();
  await ended;
  assert.match(text, /event: error\ndata: the connection to node node-a broke while the command ran[^\n]*\n\n$/);
  await node.restart();
});

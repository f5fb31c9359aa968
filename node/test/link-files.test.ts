/**
 * Files on the link with guests that misbehave: what a scripted guest may answer, and what its caller gets.
 */
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import type { ClientRequest, IncomingMessage } from "node:http";
import { test, type TestContext } from "node:test";
import { type Clock, systemClock } from "@flotilla/base/clock";
import type { FileOperation } from "@flotilla/contract/link/file-parts";
import type { LinkError } from "@flotilla/contract/link/link";
import { until } from "../../test/support/until.ts";
import { FileFailure } from "../src/guest/file-answer.ts";
import { type Guest, GuestBusy } from "../src/guest/guest.ts";
import { serveFile, statusOfFailure } from "../src/link/files.ts";
import { hurriedClock } from "./support/in-process.ts";
import { requestTo } from "./support/request-to.ts";
import { scriptedExec } from "./support/scripted-exec.ts";

/** A file worker whose streams and exit the test controls. */
function scripted() {
  const killed = Promise.withResolvers<void>();
  let isKilled = false;
  const { exec, exiting, stdin, stdout, stderr } = scriptedExec(() => {
    isKilled = true;
    killed.resolve();
  });
  /** Resolves when both outputs were delivered, as a real one. */
  const exit = (exitCode: number): void => {
    const delivered = [stdout, stderr].map((output) => once(output, "end"));
    for (const output of [stdout, stderr]) if (!output.writableEnded) output.end();
    void Promise.all(delivered).then(() => exiting.resolve({ exitCode }));
  };
  const exitNow = (): void => exiting.resolve({ exitCode: 0 });
  const lose = (): void => exiting.reject(new Error("the channel to the guest agent is lost"));
  return { exec, stdin, stdout, stderr, exit, lose, killed: killed.promise, isKilled: () => isKilled, exitNow };
}

interface Setting {
  readonly clock?: Clock;
  readonly hasRoom?: () => Promise<boolean>;
  readonly obstacle?: () => LinkError | null;
  readonly isSwitching?: () => boolean;
}

/** Serves one operation with the guest; gives the request, to which a body can be written. */
async function begin(t: TestContext, guest: Partial<Guest>, operation: FileOperation, setting: Setting = {}) {
  const { clock = systemClock, hasRoom = () => Promise.resolve(true) } = setting;
  const { obstacle = () => null, isSwitching = () => false } = setting;
  const options = { guest: guest as Guest, clock, hasRoom, obstacle, isSwitching };
  return await requestTo(t, (request, response) => {
    serveFile(request, response, operation, options).catch((error: unknown) => {
      if (!(error instanceof FileFailure)) return void response.writeHead(400).end(String(error));
      response.writeHead(statusOfFailure(error.code)).end(JSON.stringify({ code: error.code, message: error.message }));
    });
  });
}

interface Answer {
  readonly status: number;
  readonly headers: IncomingMessage["headers"];
  readonly body: Buffer;
  /** The connection broke before the answer was complete. */
  readonly isBroken: boolean;
}

async function answerTo(request: ClientRequest): Promise<Answer> {
  const [response] = (await once(request, "response")) as [IncomingMessage];
  const chunks: Buffer[] = [];
  response.on("data", (chunk: Buffer) => chunks.push(chunk));
  response.on("error", () => undefined);
  await new Promise<void>((resolve) => {
    response.once("close", resolve);
  });
  const { statusCode = 0, headers, complete } = response;
  return { status: statusCode, headers, body: Buffer.concat(chunks), isBroken: !complete };
}

const PATH = JSON.stringify({ path: "/workspace/a" });
const READ = JSON.stringify({ path: "/workspace/a", offset: 0 });
const jsonOf = ({ body }: Answer): { kind?: string; code?: string; error?: { code: string }; sha256?: string } =>
  JSON.parse(body.toString());

test("a file is read with its facts, and a part of it with the part's length", async (t) => {
  for (const [message, length] of [
    [READ, 5],
    [JSON.stringify({ path: "/a", offset: 2, isFromEnd: true }), 2],
    [JSON.stringify({ path: "/a", offset: 9 }), 0],
  ] as const) {
    const { exec, stdout, exit } = scripted();
    const request = await begin(t, { file: () => exec }, "read");
    request.end(message);
    stdout.write("f 0644 5 1700000000000\n");
    stdout.end("hello".slice(5 - length));
    exit(0);
    const answer = await answerTo(request);
    assert.deepEqual([answer.status, answer.body.toString()], [200, "hello".slice(5 - length)]);
    assert.equal(answer.headers["content-length"], String(length));
    assert.deepEqual(JSON.parse(String(answer.headers["flotilla-file"])), {
      mode: "0644",
      size: 5,
      modifiedAt: 1_700_000_000_000,
    });
  }
});

test("what the agent refuses has a status and a code, and other texts of it are passed on in part", async (t) => {
  for (const [said, status, code] of [
    ["not_found No such file or directory", 409, "no_such_file"],
    ["is_directory Is a directory", 409, "is_directory"],
    ["no_space No space left on device", 507, "no_space"],
    ["no_space memory", 507, "no_space"],
    ["memory /tmp/x", 409, "in_memory"],
    ["refused Operation not permitted", 409, "file_refused"],
    [`${"x".repeat(1e6)}`, 409, "file_refused"],
    ["", 409, "file_refused"],
  ] as const) {
    const { exec, stdout, stderr, exit } = scripted();
    const request = await begin(t, { file: () => exec }, "read");
    request.end(READ);
    stdout.end();
    stderr.end(said);
    exit(1);
    const answer = await answerTo(request);
    assert.deepEqual([answer.status, jsonOf(answer).code], [status, code], said.slice(0, 20));
    assert.ok(answer.body.byteLength < 500);
  }
});

test("a guest that takes no command, and one whose channel is lost, are reported", async (t) => {
  const refuse = (error: Error) => () => {
    throw error;
  };
  for (const [error, status, code] of [
    [new GuestBusy("256 commands run"), 503, "busy"],
    [new Error("its channel was closed"), 502, "guest_unreachable"],
    [new RangeError("a zero byte"), 400, "invalid"],
  ] as const) {
    const request = await begin(t, { file: refuse(error) }, "remove");
    request.end(PATH);
    const answer = await answerTo(request);
    assert.deepEqual([answer.status, jsonOf(answer).code], [status, code]);
  }
  const { exec, lose } = scripted();
  const request = await begin(t, { file: () => exec }, "list");
  request.end(PATH);
  lose();
  const answer = await answerTo(request);
  assert.deepEqual([answer.status, jsonOf(answer).code], [502, "guest_unreachable"]);
});

test("invalid requests are refused before the guest sees them", async (t) => {
  const file = () => assert.fail("the guest was asked");
  for (const [operation, message] of [
    ["read", "{"],
    ["read", JSON.stringify({ path: "relative", offset: 0 })],
    ["read", JSON.stringify({ path: "/a", offset: -1 })],
    ["write", `${JSON.stringify({ path: "/a", sha256: "x" })}\ncontent`],
    ["list", "{}"],
    ["remove", JSON.stringify({ path: `/${"x".repeat(100_000)}` })],
  ] as const) {
    const request = await begin(t, { file }, operation);
    request.end(message);
    assert.equal((await answerTo(request)).status, 400, `${operation} ${message.slice(0, 40)}`);
  }
});

test("an invalid first line ends the operation, however long it is", async (t) => {
  for (const line of ["garbage\n", "f 0644 -5 0\n", `f 0644 5 ${"9".repeat(1000)}`, randomBytes(4096)]) {
    const { exec, stdout, killed } = scripted();
    const request = await begin(t, { file: () => exec }, "read");
    request.end(READ);
    stdout.write(line);
    const answer = await answerTo(request);
    assert.deepEqual([answer.status, jsonOf(answer).code], [502, "guest_unreachable"]);
    await killed;
  }
  const { exec, exit } = scripted();
  const request = await begin(t, { file: () => exec }, "write");
  request.end(`${PATH}\ncontent`);
  exit(0);
  assert.equal((await answerTo(request)).status, 502);
});

test("a read whose guest sends too much, too little or dies has no complete answer", async (t) => {
  for (const misbehave of [
    ({ stdout }: ReturnType<typeof scripted>) => stdout.write("123456"),
    ({ stdout, exit }: ReturnType<typeof scripted>) => {
      stdout.end("1234");
      exit(0);
    },
    ({ stdout, lose }: ReturnType<typeof scripted>) => {
      stdout.write("123");
      lose();
    },
  ]) {
    const guest = scripted();
    const request = await begin(t, { file: () => guest.exec }, "read");
    request.end(READ);
    guest.stdout.write("f 0644 5 0\n");
    const answering = answerTo(request).catch(() => null);
    misbehave(guest);
    const answer = await answering;
    assert.ok(answer === null || answer.isBroken || answer.status === 502);
  }
});

test("an operation whose guest makes no progress times out", async (t) => {
  const clock = hurriedClock(1000);
  for (const operation of ["read", "write", "list", "remove"] as const) {
    const { exec, killed } = scripted();
    const request = await begin(t, { file: () => exec }, operation, { clock });
    request.end(operation === "write" ? `${PATH}\ncontent` : READ);
    const answer = await answerTo(request);
    assert.deepEqual([answer.status, jsonOf(answer).code], [502, "guest_unreachable"], operation);
    await killed;
  }
  const { exec, stdout, killed } = scripted();
  const request = await begin(t, { file: () => exec }, "write", { clock });
  request.end(`${PATH}\ncontent`);
  stdout.write("ready\n");
  const answer = await answerTo(request);
  assert.deepEqual([answer.status, jsonOf(answer).error?.code], [200, "guest_unreachable"]);
  await killed;
});

test("a file is written when its content is complete and has the announced hash", async (t) => {
  const content = randomBytes(3_000_000);
  const sha256 = createHash("sha256").update(content).digest("hex");
  for (const announced of [null, sha256, "0".repeat(64)]) {
    const { exec, stdin, stdout, exit, killed } = scripted();
    const request = await begin(t, { file: () => exec }, "write");
    request.write(`${JSON.stringify({ path: "/a", sha256: announced })}\n`);
    stdout.write("ready\n");
    const received: Buffer[] = [];
    stdin.on("data", (chunk: Buffer) => received.push(chunk));
    stdin.on("end", () => exit(0));
    request.end(content);
    const answer = await answerTo(request);
    if (announced === null || announced === sha256) {
      assert.deepEqual(jsonOf(answer), { kind: "written", sha256 });
      assert.ok(Buffer.concat(received).equals(content));
    } else {
      assert.equal(jsonOf(answer).error?.code, "hash_differs");
      assert.equal(stdin.writableEnded, false, "the guest did not get the end");
      await killed;
    }
  }
});

test("a guest that refuses in the middle of a write answers the caller, whose content is not used up", async (t) => {
  const { exec, stdout, stderr, exit } = scripted();
  const request = await begin(t, { file: () => exec }, "write");
  request.write(`${PATH}\n`);
  stdout.write("ready\n");
  request.write(randomBytes(100_000));
  const answering = answerTo(request);
  await once(request, "response");
  stderr.end("no_space No space left on device");
  exit(1);
  const answer = await answering;
  assert.deepEqual([answer.status, jsonOf(answer).error?.code], [200, "no_space"]);
});

test("a write shows that its node is alive, also while its content is awaited", async (t) => {
  const { exec, stdout } = scripted();
  const request = await begin(t, { file: () => exec }, "write");
  request.write(`${PATH}\n`);
  stdout.write("ready\n");
  const [response] = (await once(request, "response")) as [IncomingMessage];
  assert.equal(String((await once(response, "data"))[0]), "\n");
});

test("a guest that does not read stops the caller, and a caller that leaves ends the write", async (t) => {
  const { exec, stdout, stdin, killed } = scripted();
  const request = await begin(t, { file: () => exec }, "write");
  request.write(`${PATH}\n`);
  stdout.write("ready\n");
  await once(request, "response");
  const piece = Buffer.alloc(65_536);
  let sent = 0;
  const push = (): void => {
    let hasRoom = true;
    for (; hasRoom && sent < 1000; sent += 1) hasRoom = request.write(piece);
  };
  request.on("drain", push);
  push();
  let before = -1;
  await until(() => before === (before = sent) && stdin.writableNeedDrain, { what: "the caller to be stopped" });
  assert.ok(stdin.readableLength + stdin.writableLength < 10 * piece.byteLength);
  request.destroy();
  await killed;
  assert.equal(stdin.writableEnded, false);
});

test("a caller that does not read stops the guest", async (t) => {
  const { exec, stdout } = scripted();
  const request = await begin(t, { file: () => exec }, "read");
  request.end(READ);
  const size = 256 * 1024 * 1024;
  stdout.write(`f 0644 ${size} 0\nfirst`);
  const [response] = (await once(request, "response")) as [IncomingMessage];
  response.pause();
  const piece = Buffer.alloc(65_536);
  let sent = 0;
  const push = (): void => {
    let hasRoom = true;
    for (; hasRoom && sent < size; sent += piece.byteLength) hasRoom = stdout.write(piece);
  };
  stdout.on("drain", push);
  push();
  let before = -1;
  await until(() => before === (before = sent) && sent > 0, { what: "the guest to be stopped" });
  assert.ok(sent < size / 4, `${sent} bytes were taken`);
  response.destroy();
});

test("content that is buffered when the guest has ended reaches a slow caller completely", async (t) => {
  const { exec, stdout, exitNow } = scripted();
  const request = await begin(t, { file: () => exec }, "read");
  request.end(READ);
  const size = 16 * 1024 * 1024;
  stdout.write(`f 0644 ${size} 0\n`);
  stdout.end(Buffer.alloc(size));
  exitNow();
  const [response] = (await once(request, "response")) as [IncomingMessage];
  let bytes = 0;
  response.on("error", () => undefined);
  response.on("data", (chunk: Buffer) => {
    bytes += chunk.byteLength;
    response.pause();
    setImmediate(() => response.resume());
  });
  await once(response, "close");
  assert.equal(bytes, size);
});

test("a directory is listed entry by entry, and a listing without end is bounded", async (t) => {
  const { exec, stdout, exit } = scripted();
  const request = await begin(t, { file: () => exec }, "list");
  request.end(PATH);
  const entries = "f 0600 7 -1\0odd\nname\0d 0755 4096 1700000000000\0größe\0";
  stdout.write("d 0755 4096 0\n");
  for (const byte of Buffer.from(entries)) stdout.write(Buffer.from([byte]));
  stdout.end();
  exit(0);
  const lines = (await answerTo(request)).body
    .toString()
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as { kind: string; entry?: object });
  assert.deepEqual(lines, [
    { kind: "entry", entry: { name: "odd\nname", kind: "file", mode: "0600", size: 7, modifiedAt: 0 } },
    {
      kind: "entry",
      entry: { name: "größe", kind: "directory", mode: "0755", size: 4096, modifiedAt: 1_700_000_000_000 },
    },
    { kind: "done" },
  ]);
  for (const [flood, code] of [
    ["f 0600 7 1\0a\0".repeat(5_000), "too_many_entries"],
    [`f 0600 7 1\0${"a".repeat(50_000)}`, "guest_unreachable"],
    ["garbage\0name\0", "guest_unreachable"],
  ] as const) {
    const endless = scripted();
    const listing = await begin(t, { file: () => endless.exec }, "list");
    listing.end(PATH);
    endless.stdout.write("d 0755 4096 0\n");
    const push = (): void => {
      while (!endless.isKilled() && endless.stdout.write(flood));
    };
    endless.stdout.on("drain", push);
    const answering = answerTo(listing);
    push();
    const last = (await answering).body.toString().trimEnd().split("\n").at(-1) ?? "";
    assert.equal((JSON.parse(last) as { error: { code: string } }).error.code, code);
  }
});

test("a write for which the host has no space is refused although its guest is silent", async (t) => {
  const { exec, stdout } = scripted();
  const looks = [true, true];
  const hasRoom = () => Promise.resolve(looks.shift() ?? false);
  const request = await begin(t, { file: () => exec }, "write", { hasRoom });
  request.write(`${PATH}\nsome`);
  stdout.write("ready\n");
  const answer = await answerTo(request);
  assert.deepEqual([answer.status, jsonOf(answer).error?.code], [200, "no_space"]);
});

test("a paused guest is asked nothing, and one that was paused during the work says why it made no progress", async (t) => {
  const full = { code: "paused", message: "its host's disk is full" } as const;
  const paused = await begin(t, {}, "read", { obstacle: () => full });
  paused.end(READ);
  const refused = await answerTo(paused);
  assert.deepEqual([refused.status, refused.body.toString()], [503, JSON.stringify(full)]);

  const { exec } = scripted();
  const before = [null];
  const obstacle = () => (before.length > 0 ? (before.shift() ?? null) : full);
  const silent = await begin(t, { file: () => exec }, "read", { clock: hurriedClock(1_000), obstacle });
  silent.end(READ);
  assert.equal(jsonOf(await answerTo(silent)).code, "paused");
});

test("work in a guest whose agent does not answer any more ends with that, and not only when it made no progress", async (t) => {
  const { exec } = scripted();
  const silence = { code: "guest_unreachable", message: "its agent has not answered" } as const;
  const before = [null];
  const obstacle = () => (before.length > 0 ? (before.shift() ?? null) : silence);
  const request = await begin(t, { file: () => exec }, "read", { obstacle });
  request.end(READ);
  const answer = await answerTo(request);
  assert.deepEqual([answer.status, answer.body.toString()], [502, JSON.stringify(silence)]);
});

test("work that a new VMM interrupts says so, and does not blame the guest's agent", async (t) => {
  const isSwitching = () => true;
  const read = scripted();
  const reading = await begin(t, { file: () => read.exec }, "read", { isSwitching });
  reading.end(READ);
  read.lose();
  const refused = await answerTo(reading);
  assert.deepEqual([refused.status, jsonOf(refused).code], [503, "interrupted"]);

  const written = scripted();
  const writing = await begin(t, { file: () => written.exec }, "write", { isSwitching });
  writing.write(`${PATH}\nthe beginning`);
  written.stdout.write("ready\n");
  await once(written.stdin, "data");
  written.lose();
  const answer = await answerTo(writing);
  assert.deepEqual([answer.status, jsonOf(answer).error?.code], [200, "interrupted"]);
});

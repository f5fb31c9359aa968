/**
 * Commands over HTTP, through a real node agent and a scripted guest.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { startMachineServer } from "./support/machine-server.ts";
import { countStatements } from "./support/statements.ts";
import { until } from "../../test/support/until.ts";
import { head, type Wire, wire } from "../../test/support/wire.ts";

const { server, client, machine } = await startMachineServer();
const MIB = 1024 * 1024;

const shared = await machine({ env: { FROM: "machine" } });
const exec = (body: object, query = "", id = shared) => client.post(`/v1/machines/${id}/exec${query}`, body);

test("a stopped machine is started by a command", async () => {
  const answer = await exec({ command: ["sh", "-c", "true"] });
  assert.equal(answer.status, 200, answer.text);
  assert.equal(answer.json.exitCode, 0);
  assert.equal(answer.json.machineId, shared);
  assert.equal((await client.get(`/v1/machines/${shared}`)).json.state, "started");
});

test("a string runs in a shell, an array runs unchanged", async () => {
  const text = await exec({ command: "echo out; echo err >&2; exit 3" });
  assert.deepEqual(
    [text.json.stdout, text.json.stderr, text.json.exitCode, text.json.stdoutB64],
    ["out\n", "err\n", 3, Buffer.from("out\n").toString("base64")],
  );
  assert.equal((await exec({ command: ["echo", "$HOME; x"] })).json.stdout, "$HOME; x\n");
});

test("output has both forms, or the requested one", async () => {
  const both = (await exec({ command: "echo hi" })).json;
  assert.deepEqual([both.stdout, both.stdoutB64], ["hi\n", "aGkK"]);
  const text = (await exec({ command: "echo hi" }, "?output=text")).json;
  assert.deepEqual([text.stdout, "stdoutB64" in text], ["hi\n", false]);
  const b64 = (await exec({ command: "echo hi" }, "?output=b64")).json;
  assert.deepEqual([b64.stdout, b64.stderr, b64.stdoutB64], ["", "", "aGkK"]);
  assert.equal((await exec({ command: "true" }, "?output=xml")).status, 422);
});

test("cwd, environment and standard input reach the command", async () => {
  assert.equal((await exec({ command: "pwd", cwd: "/tmp" })).json.stdout, "/tmp\n");
  assert.equal((await exec({ command: ["printenv", "FROM"] })).json.stdout, "machine\n");
  assert.equal((await exec({ command: ["printenv", "FROM"], env: { FROM: "call" } })).json.stdout, "call\n");
  assert.equal((await exec({ command: ["cat"], stdin: "zwölf\n" })).json.stdout, "zwölf\n");
  assert.equal((await exec({ command: ["cat"], stdin: "" })).json.stdout, "");
  const large = "x".repeat(3 * MIB);
  const echoed = await exec({ command: ["cat"], stdin: large }, "?output=b64");
  assert.equal(Buffer.from(echoed.json.stdoutB64, "base64").toString() === large, true);
});

test("null means absent in every optional field", async () => {
  const body = { command: ["echo", "x"], env: null, cwd: null, timeoutSeconds: null, stdin: null, user: null };
  assert.equal((await exec({ ...body, background: null, stream: null })).json.stdout, "x\n");
});

test("errors in the guest are answered with an exit code", async () => {
  const missing = (await exec({ command: ["nope"] })).json;
  assert.equal(missing.exitCode, 255);
  assert.match(missing.stderr, /executable file 'nope' not found in \$PATH/);
  const late = (await exec({ command: ["sleep", "30"], timeoutSeconds: 1 })).json;
  assert.deepEqual([late.exitCode, late.stderr], [124, "command timed out\n"]);
  assert.ok(late.durationMs >= 1000);
});

test("text is capped at 1 MiB with a flag, base64 is exact beyond it", async () => {
  const { json } = await exec({ command: ["head", "-c", String(2 * MIB), "/dev/zero"] });
  assert.equal(json.stdout.length, MIB);
  assert.equal(json.stdoutTruncated, true);
  assert.equal(json.stderrTruncated, false);
  assert.equal(Buffer.from(json.stdoutB64, "base64").byteLength, 2 * MIB);
  const exact = (await exec({ command: ["head", "-c", String(MIB), "/dev/zero"] }, "?output=text")).json;
  assert.deepEqual([exact.stdout.length, exact.stdoutTruncated], [MIB, false]);
});

test("endless output is discarded past the cap, and the command runs to its end", async () => {
  // The fake guest's `yes` ends after 64 MiB.
  const { json } = await exec({ command: "yes; echo done >&2" });
  assert.equal(json.exitCode, 0);
  assert.equal(json.stderr, "done\n");
  assert.deepEqual([json.stdoutTruncated, json.stdoutB64Truncated, json.stderrB64Truncated], [true, true, false]);
  assert.equal(Buffer.from(json.stdoutB64, "base64").byteLength, 16 * MIB);
});

test("a command in the background answers immediately with its pid", async () => {
  const { json } = await exec({ command: ["sleep", "30"], background: true });
  assert.match(json.stdout, /^pid=\d+\n$/);
  assert.equal(json.exitCode, 0);
});

test("a command in the background gets no input, which is refused instead of lost", async () => {
  assert.equal((await exec({ command: ["cat"], background: true, stdin: "" })).status, 200);
});

test("the commands of a machine are counted when it stops, and when it is deleted", async () => {
  const id = await machine();
  const count = async (path: string, call = client.get(path)) => (await call).json.usage.execCount;
  for (let each = 0; each < 3; each += 1) await exec({ command: "true" }, "", id);
  await client.post(`/v1/machines/${id}/stop`);
  assert.equal(await count(`/v1/machines/${id}/usage`), 3);
  for (let each = 0; each < 3; each += 1) await exec({ command: "true" }, "", id);
  const path = `/v1/machines/${id}?includeUsage=true`;
  assert.equal(await count(path, client.call("DELETE", path)), 6);
});

test("an invalid command is refused before it reaches the machine", async () => {
  const refusals: readonly [object, number, RegExp][] = [
    [{ command: ["cat"], background: true, stdin: "x" }, 400, /background gets no input/],
    [{ command: [""] }, 400, /empty program name/],
    [{ command: [] }, 422, /command: expected at least 1 entries; command is such as "uname -a" or \["uname","-a"\]/],
    [{ command: 7 }, 422, /command: expected string or array; command is such as/],
    [{ command: "" }, 422, /command/],
    [{ command: "a\u0000b" }, 422, /NUL/],
    [{}, 422, /command/],
    [{ command: "x".repeat(200_000) }, 400, /larger than/],
    [{ command: "true", env: { "A=": "x" } }, 400, /"A="/],
    [{ command: "true", timeoutSeconds: 86_401 }, 422, /86400/],
    [{ command: "true", timeoutSeconds: -1 }, 422, /timeoutSeconds/],
    [{ command: ["cat"], stdin: "x".repeat(17 * MIB) }, 413, /stdin is larger/],
  ];
  for (const [body, status, text] of refusals) {
    const answer = await exec(body);
    assert.equal(answer.status, status, answer.text);
    assert.match(answer.text, text);
  }
});

test("a machine in error refuses commands with the reason, a deleted one is not found", async () => {
  const broken = await machine({ env: { FAKE_BOOT_FAIL: "1" } });
  const first = await exec({ command: "true" }, "", broken);
  assert.equal(first.status, 503);
  assert.equal(first.headers.get("x-error-code"), "start_failed");
  const second = await exec({ command: "true" }, "", broken);
  assert.equal(second.status, 409);
  assert.match(second.text, /in state error: .*FAKE_BOOT_FAIL/);
  const events = (await client.get(`/v1/machines/${broken}/events`)).json as { message: string }[];
  assert.match(events.at(-1)?.message ?? "", /^auto-start failed: /);
  await client.delete(`/v1/machines/${broken}`);
  assert.equal((await exec({ command: "true" }, "", broken)).status, 404);
});

test("a command whose machine is stopped or deleted during it gets an answer that says so", async () => {
  const ends: Readonly<Record<string, (path: string) => Promise<unknown>>> = {
    stopped: (path) => client.post(`${path}/stop`),
    deleted: (path) => client.delete(path),
  };
  for (const [word, end] of Object.entries(ends)) {
    const id = await machine();
    const path = `/v1/machines/${id}`;
    const answer = await fetch(`${client.url}${path}/exec/stream`, {
      method: "POST",
      headers: { authorization: `Bearer ${client.key}`, "content-type": "application/json" },
      body: JSON.stringify({ command: "echo begun; sleep 60" }),
    });
    const output = answer.body?.pipeThrough(new TextDecoderStream()) ?? new ReadableStream<string>();
    let received = "";
    for await (const text of output) {
      if (received === "") await end(path);
      received += text;
    }
    const told = `event: error\ndata: the command ended with machine ${id}, which was ${word} while it ran\n\n`;
    assert.equal(received, `event: stdout\ndata: begun\ndata: \n\n${told}`);
  }
});

test("a machine that powered itself off is started again by the next command", async () => {
  const id = await machine();
  await exec({ command: ["poweroff"] }, "", id);
  const answer = await exec({ command: "echo back" }, "", id);
  assert.equal(answer.status, 200, answer.text);
  assert.equal(answer.json.stdout, "back\n");
});

test("commands in a machine that is starting wait for it", async () => {
  const id = await machine({ env: { FAKE_BOOT_MS: "300" } });
  const answers = await Promise.all(Array.from({ length: 10 }, (_, n) => exec({ command: `echo ${n}` }, "", id)));
  assert.deepEqual(
    answers.map(({ json }) => json.stdout),
    Array.from({ length: 10 }, (_, n) => `${n}\n`),
  );
  const events = (await client.get(`/v1/machines/${id}/events`)).json as { message: string }[];
  assert.equal(events.filter(({ message }) => message === "machine started").length, 1);
});

test("two hundred commands at once in one machine", async () => {
  const answers = await Promise.all(Array.from({ length: 200 }, (_, n) => exec({ command: ["echo", String(n)] })));
  assert.equal(
    answers.every(({ status, json }, n) => status === 200 && json.stdout === `${n}\n`),
    true,
  );
});

test("a caller that disconnects ends its command", async () => {
  const id = await machine();
  await exec({ command: "true" }, "", id);
  const gone = new AbortController();
  const calling = client.post(`/v1/machines/${id}/exec`, { command: ["sleep", "600"] }, { signal: gone.signal });
  // The command counts as activity from its start, so activity shows that it has begun.
  await until(async () => (await client.get(`/v1/machines/${id}`)).json.lastActivityAt !== null);
  gone.abort();
  await assert.rejects(calling);
  assert.equal((await exec({ command: "echo next" }, "", id)).json.stdout, "next\n");
});

test("commands are counted, shown on the timeline and written in batches", async () => {
  const id = await machine();
  for (const code of [0, 0, 7]) await exec({ command: ["exit", String(code)] }, "", id);
  const { usage } = await until(async () => {
    const answer = (await client.get(`/v1/machines/${id}/usage`)).json;
    return answer.usage.execCount >= 3 && answer;
  });
  assert.equal(usage.execCount, 3);
  const events = (await client.get(`/v1/machines/${id}/events`)).json as { message: string }[];
  assert.equal(
    events.some(({ message }) => /exec ended|execs ended/.test(message)),
    true,
  );
  assert.notEqual((await client.get(`/v1/machines/${id}`)).json.lastActivityAt, null);
});

test("each command is found in the tenant's events, also those that end together", async () => {
  const id = await machine();
  await exec({ command: "true" }, "", id);
  const codes = Array.from({ length: 130 }, (_, code) => code);
  await Promise.all(codes.map((code) => exec({ command: ["exit", String(code)] }, "", id)));
  const found = await until(async () => {
    const events = (await client.get(`/v1/events?machine=${id}&limit=1000`)).json as ExecEvent[];
    const execs = events.flatMap(({ data }) => data.execs ?? (data.exitCode === undefined ? [] : [data]));
    return execs.length > codes.length && execs;
  });
  const sorted = found.map(({ exitCode }) => exitCode).toSorted((one, other) => Number(one) - Number(other));
  assert.deepEqual(sorted, [0, ...codes]);
});

interface EndedExec {
  readonly exitCode?: number;
}
interface ExecEvent {
  readonly data: EndedExec & { readonly execs?: readonly EndedExec[] };
}

test("however many commands run, none waits for the database, and they are recorded in batches", async () => {
  const id = await machine();
  await exec({ command: "true" }, "", id);
  const startedAt = performance.now();
  const fifty = () => Promise.all(Array.from({ length: 50 }, () => exec({ command: "true" }, "", id)));
  // The node's report of the start may arrive in between, and is written once.
  const rounds: number[] = [];
  for (let round = 0; round < 5 && !rounds.includes(0); round += 1)
    rounds.push(await countStatements(server.context.db, fifty));
  const batches = await countStatements(server.context.db, fifty, /machine_exec_minutes/);
  assert.equal(Math.min(...rounds), 0);
  const batchesMax = 1 + (performance.now() - startedAt) / 250;
  assert.ok(batches <= batchesMax, `${batches} batches were written, at most ${batchesMax} are due`);
});

test("each verb makes few round trips to the database", async () => {
  const { db } = server.context;
  const source = { type: "image", reference: "local/busybox" };
  const round = async () => {
    let id = "";
    return {
      create: await countStatements(db, async () => {
        id = (await client.post("/v1/machines", { source })).json.id;
      }),
      start: await countStatements(db, () => client.post(`/v1/machines/${id}/start`)),
      exec: await countStatements(db, () => exec({ command: "true" }, "", id)),
      get: await countStatements(db, () => client.get(`/v1/machines/${id}`)),
      events: await countStatements(db, () => client.get(`/v1/machines/${id}/events`)),
      stop: await countStatements(db, () => client.post(`/v1/machines/${id}/stop`)),
      delete: await countStatements(db, () => client.delete(`/v1/machines/${id}`)),
    };
  };
  // A stop reads, writes the desired state and writes the observed one; no request waits for that second
  // write of a delete. A start makes two writes, reads the nodes when the cache is older than a second, and
  // when it takes long, one more write says that it is under way.
  const expected = { create: 1, start: 4, exec: 0, get: 0, events: 1, stop: 3, delete: 1 };
  type Counts = Record<keyof typeof expected, number>;
  const verbs = Object.keys(expected) as (keyof Counts)[];
  // On a busy host the node's own report is often faster than its answer, and its statements are counted
  // here.
  let least: Counts = await round();
  for (let more = 0; more < 60 && verbs.some((verb) => least[verb] > expected[verb]); more += 1) {
    const counts = await round();
    least = Object.fromEntries(verbs.map((verb) => [verb, Math.min(least[verb], counts[verb])])) as Counts;
  }
  assert.deepEqual({ ...least, start: Math.max(least.start, 4) }, expected);
});

test("outputs that their callers do not read are held up to a bound, and the oldest are lost", async () => {
  const body = JSON.stringify({ command: ["head", "-c", String(16 * MIB), "/dev/zero"] });
  const length = { "content-type": "application/json", "content-length": String(body.length) };
  const unread: Wire[] = [];
  // Each is 22 MB of base64, so fewer than 13 fit into the 256 MiB of a tenant.
  for (let count = 0; count < 16; count += 1) {
    const one = await wire(server.url);
    one.socket.once("data", () => one.socket.pause());
    one.send(head("POST", `/v1/machines/${shared}/exec?output=b64`, server.adminKey.key, length) + body);
    await until(() => one.received() !== "", { what: "the answer to begin", deadlineMs: 30_000 });
    assert.match(one.received(), /^HTTP\/1\.1 200 /);
    unread.push(one);
  }
  const isWhole = ({ received }: Wire): boolean => received().endsWith("}");
  const outcomes: string[] = [];
  for (const one of unread) {
    one.socket.resume();
    await until(() => isWhole(one) || one.isClosed(), { what: "the rest of an answer", deadlineMs: 30_000 });
    outcomes.push(isWhole(one) ? "whole" : "cut");
  }
  const cut = outcomes.lastIndexOf("cut") + 1;
  assert.ok(cut >= 3 && cut <= 6, outcomes.join(" "));
  assert.ok(
    outcomes.slice(cut).every((outcome) => outcome === "whole"),
    outcomes.join(" "),
  );
});

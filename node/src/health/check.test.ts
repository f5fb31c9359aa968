/**
 * Checks of each kind against programs that answer well, badly and not at all.
 */
import assert from "node:assert/strict";
import { type Duplex, duplexPair } from "node:stream";
import { test } from "node:test";
import { endOfTurn, systemClock } from "@flotilla/base/clock";
import type { MachineHealthCheck } from "@flotilla/contract/link/link";
import { scriptedExec } from "../../test/support/scripted-exec.ts";
import type { GuestExec, GuestExecRequest } from "../guest/guest.ts";
import { runCheck } from "./check.ts";
import type { CheckResult } from "./counter.ts";

const HEALTHY: CheckResult = { isHealthy: true };
const CHECK: MachineHealthCheck = {
  ...{ type: "http", path: "/healthz?deep=1", port: 80, command: null, host: "web.example.com" },
  ...{ intervalMs: 10_000, timeoutMs: 60_000, retries: 3 },
};
/** Timeouts that must end a check are soon over. */
const SHORT = { timeoutMs: 100 };

const noExec = (): GuestExec => assert.fail("no command");
const forever = new AbortController().signal;

interface Guest {
  /** What it has received on its last connection. */
  received: string;
  connection: Duplex | null;
}

/** A guest that says these bytes when a request has come, and then ends the connection or waits. */
async function httpCheck(
  answer: string | Buffer,
  more: Partial<MachineHealthCheck> = {},
  then: "end" | "wait" | "break" = "end",
): Promise<{ readonly result: CheckResult; readonly guest: Guest }> {
  const guest: Guest = { received: "", connection: null };
  const dial = (): Promise<Duplex> => {
    const [caller, other] = duplexPair();
    guest.connection = other;
    other.on("error", () => undefined);
    caller.once("close", () => other.destroy());
    other.on("data", (chunk: Buffer) => {
      guest.received += chunk.toString();
      if (!guest.received.endsWith("\r\n\r\n")) return;
      other.write(answer);
      if (then === "end") other.end();
      if (then === "break") caller.destroy();
    });
    return Promise.resolve(caller);
  };
  const target = { guest: { exec: noExec }, network: { dial } };
  return { result: await runCheck({ ...CHECK, ...more }, target, systemClock, forever), guest };
}

const reasonOf = (result: CheckResult): string => (result.isHealthy ? "healthy" : result.reason);
const answered = async (...all: Parameters<typeof httpCheck>): Promise<string> =>
  reasonOf((await httpCheck(...all)).result);

const ok = (body = "", more = ""): string => `HTTP/1.1 200 OK\r\n${more}content-length: ${body.length}\r\n\r\n${body}`;
const status = (code: number, body = ""): string =>
  `HTTP/1.1 ${code} X\r\ncontent-length: ${body.length}\r\n\r\n${body}`;

test("a request looks like one to the app's address: its host, through TLS, with a path and a query", async () => {
  const { result, guest } = await httpCheck(ok("fine"));
  assert.deepEqual(result, HEALTHY);
  const [line, ...headers] = guest.received.trimEnd().split("\r\n");
  assert.equal(line, "GET /healthz?deep=1 HTTP/1.1");
  const lower = headers.map((header) => header.toLowerCase());
  for (const expected of ["host: web.example.com", "x-forwarded-proto: https", "user-agent: flotilla-health/1"])
    assert.ok(lower.includes(expected), `${expected} in ${lower.join("; ")}`);
  assert.match((await httpCheck(ok(), { path: null, host: null })).guest.received, /^GET \/ [^]*host: localhost\r\n/i);
});

test("2xx and 3xx are healthy, and no redirect is followed", async () => {
  const redirect = "HTTP/1.1 301 Moved\r\nlocation: https://web.example.com/\r\ncontent-length: 0\r\n\r\n";
  for (const answer of [ok(), status(204), status(304), redirect, status(399), `HTTP/1.1 103 Early\r\n\r\n${ok("x")}`])
    assert.equal(await answered(answer), "healthy", answer);
});

test("any other status is a failure, with the status and the first bytes of the answer in one line", async () => {
  const page = "<h1>no\u0000 such\r\n host</h1>";
  assert.equal(await answered(status(400, page)), "GET /healthz?deep=1 was answered 400: <h1>no such host</h1>");
  assert.equal(await answered(status(405)), "GET /healthz?deep=1 was answered 405, without a body");
  assert.equal(
    await answered(status(404, "a".repeat(5_000)), { path: "/" }),
    `GET / was answered 404: ${"a".repeat(200)}`,
  );
  assert.match(
    await answered("HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"),
    /was answered 101/,
  );
});

test("a body without an end that matters is not read to its end", async () => {
  const long = `HTTP/1.1 200 OK\r\ncontent-length: 10000000\r\n\r\n${"b".repeat(100_000)}`;
  const { result, guest } = await httpCheck(long, {}, "wait");
  assert.deepEqual(result, HEALTHY);
  await endOfTurn();
  assert.equal(guest.connection?.destroyed, true, "the connection is closed");
  assert.match(await answered(`HTTP/1.1 500 X\r\n\r\n${"e".repeat(300)}`, {}, "wait"), /answered 500: e{200}$/);
});

test("an answer that is late, or stops in the middle, is a timeout that says how far it came", async () => {
  assert.equal(await answered("", SHORT, "wait"), "GET /healthz?deep=1 was not answered within 0.1 s");
  const head = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc";
  assert.equal(
    await answered(head, SHORT, "wait"),
    "GET /healthz?deep=1 was answered 200, and the answer did not end within 0.1 s",
  );
  assert.match(await answered(head, {}, "end"), /the answer to GET \S+ \(200\) broke off after \d bytes/);
});

test("what is not HTTP, too large or closed is a failure with its reason", async () => {
  assert.match(await answered("SSH-2.0-OpenSSH\r\n"), /no good answer: it is not HTTP/);
  assert.match(await answered("HTTP/1.1 200 OK\r\nbad header\r\n\r\n"), /it is not HTTP/);
  assert.match(await answered(ok("", `x: ${"y".repeat(70_000)}\r\n`)), /its head is larger than 16 KiB/);
  assert.match(await answered("", {}, "end"), /no (good )?answer: .*the connection was closed/);
  assert.match(await answered("", {}, "break"), /no (good )?answer: .*the connection was closed/);
  const brokenChunk = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n";
  assert.match(await answered(brokenChunk), /broke off|not HTTP/);
});

const TCP: Partial<MachineHealthCheck> = { type: "tcp", path: null, host: null };

async function tcpCheck(
  dial: (port: number, signal?: AbortSignal) => Promise<Duplex>,
  more: Partial<MachineHealthCheck> = {},
): Promise<string> {
  const target = { guest: { exec: noExec }, network: { dial } };
  return reasonOf(await runCheck({ ...CHECK, ...TCP, ...more }, target, systemClock, forever));
}

test("a port that takes a connection is healthy, and the connection is closed", async () => {
  const [caller] = duplexPair();
  assert.equal(await tcpCheck(() => Promise.resolve(caller)), "healthy");
  assert.equal(caller.destroyed, true);
});

test("a port that refuses or does not answer is a failure that names it", async () => {
  const refused = (): Promise<Duplex> =>
    Promise.reject(Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" }));
  assert.equal(await tcpCheck(refused), "nothing listens on port 80");
  const silent = (_port: number, signal?: AbortSignal): Promise<Duplex> =>
    new Promise((_resolve, reject) => signal?.addEventListener("abort", () => reject(new Error("cancelled"))));
  assert.equal(await tcpCheck(silent, SHORT), "port 80 did not take a connection within 0.1 s");
  assert.equal(await tcpCheck(() => assert.fail("not dialled"), { port: null }), "its check names no port");
  const without = { guest: { exec: noExec }, network: null };
  assert.equal(reasonOf(await runCheck(CHECK, without, systemClock, forever)), "the machine has no network");
});

test("a connection that is established after the timeout is closed", async () => {
  const [caller] = duplexPair();
  const late = (_port: number, signal?: AbortSignal): Promise<Duplex> =>
    new Promise((resolve) => signal?.addEventListener("abort", () => resolve(caller)));
  assert.match(await tcpCheck(late, SHORT), /did not take a connection/);
  await endOfTurn();
  assert.equal(caller.destroyed, true);
});

const EXEC: Partial<MachineHealthCheck> = { type: "exec", port: null, command: ["check", "--all"] };

interface Scripted {
  readonly requests: GuestExecRequest[];
  killed: number;
}

/** A command that says this and exits; null: it runs until it is killed. */
async function execCheck(
  exitCode: number | null,
  { out = "", err = "", more = {} }: { out?: string; err?: string; more?: Partial<MachineHealthCheck> } = {},
): Promise<{ readonly reason: string; readonly seen: Scripted }> {
  const seen: Scripted = { requests: [], killed: 0 };
  const exec = (request: GuestExecRequest): GuestExec => {
    seen.requests.push(request);
    const scripted = scriptedExec(() => {
      seen.killed += 1;
      scripted.exiting.resolve({ exitCode: 137 });
    });
    scripted.stdout.end(out);
    scripted.stderr.end(err);
    if (exitCode !== null) scripted.stderr.once("end", () => scripted.exiting.resolve({ exitCode }));
    return scripted.exec;
  };
  const check = { ...CHECK, ...EXEC, ...more };
  return { reason: reasonOf(await runCheck(check, { guest: { exec }, network: null }, systemClock, forever)), seen };
}

test("a command that exits with 0 is healthy, and needs no network", async () => {
  const { reason, seen } = await execCheck(0, { out: "x".repeat(100_000) });
  assert.equal(reason, "healthy");
  assert.deepEqual(
    seen.requests.map(({ argv, hasStdin }) => [argv, hasStdin]),
    [[["check", "--all"], false]],
  );
  assert.equal(seen.killed, 0);
});

test("a command that fails is shown with its exit code and what it said", async () => {
  assert.equal((await execCheck(1)).reason, "the command ended with exit code 1");
  assert.equal((await execCheck(2, { out: "3 of 4\n" })).reason, "the command ended with exit code 2: 3 of 4");
  const both = await execCheck(255, { out: "a", err: "check: not found\n" });
  assert.equal(both.reason, "the command ended with exit code 255: check: not found");
});

test("a command that does not end is killed at the timeout", async () => {
  const { reason, seen } = await execCheck(null, { more: SHORT });
  assert.deepEqual([reason, seen.killed], ["the command did not end within 0.1 s", 1]);
});

test("a guest that takes no command is a failure with its reason", async () => {
  const exec = (): GuestExec => {
    throw new Error("the guest already runs 64 commands");
  };
  const result = await runCheck({ ...CHECK, ...EXEC }, { guest: { exec }, network: null }, systemClock, forever);
  assert.equal(reasonOf(result), "the guest already runs 64 commands");
});

test("a check that is not needed any more ends at once", async () => {
  const ending = new AbortController();
  const [caller] = duplexPair();
  const dial = (): Promise<Duplex> => Promise.resolve(caller);
  const checking = runCheck(CHECK, { guest: { exec: noExec }, network: { dial } }, systemClock, ending.signal);
  ending.abort();
  assert.equal((await checking).isHealthy, false);
  await endOfTurn();
  assert.equal(caller.destroyed, true);
});

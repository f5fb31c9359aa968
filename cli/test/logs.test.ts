/**
 * `flotilla machine logs` and `machine events` against a real server and a scripted guest: what is printed
 * where, and when following ends.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type Reply, reply, startPeer } from "../../sdk/test/peer.ts";
import { startTestNode, TEST_JOIN_TOKEN } from "../../server/test/support/node.ts";
import { startTestServer } from "../../server/test/support/server.ts";
import { until } from "../../test/support/until.ts";
import { runCli, startCli } from "./run-cli.ts";

const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
await startTestNode(server);
const environment = { FLOTILLA_URL: server.url, FLOTILLA_API_KEY: server.adminKey.key };
const source = { type: "image", reference: "local/busybox" };

async function started(name: string, line: string): Promise<void> {
  const body = { source, name, command: ["sh", "-c", line] };
  const { id } = (await server.client.post("/v1/machines", body)).json;
  await server.client.post(`/v1/machines/${id}/start`);
  await until(async () => (await server.client.get(`/v1/machines/${id}/logs`)).text !== "", { what: "its first line" });
}

test("workload lines go to standard output, Flotilla's own do not; with --json each line is a record", async (t) => {
  await started("ended", "echo one; echo two; exit 3");
  const cli = (...more: readonly string[]) => runCli(t, ["machine", "logs", "ended", ...more], { environment });
  const whole = async () => {
    const ran = await cli();
    return ran.errors !== "" && ran;
  };
  const { code, output, errors } = await until(whole, { what: "the end of the workload", deadlineMs: 30_000 });
  assert.deepEqual(
    [code, output.toString(), errors],
    [0, "one\ntwo\n", "flotilla: the workload ended with exit code 3\n"],
  );
  assert.equal((await cli("--tail", "2")).output.toString(), "two\n");
  const stamped = (await cli("-t")).output.toString();
  assert.match(stamped, /^\d{4}-\d\d-\d\dT[\d:.]+Z {2}one\n/);
  const records = (await cli("--json")).output.toString().trimEnd().split("\n");
  assert.deepEqual(
    records.map((record) => JSON.parse(record).message),
    ["one", "two", "the workload ended with exit code 3"],
  );
  assert.equal((await cli("--search", "TW")).output.toString(), "two\n");
  assert.equal((await cli("--since", "1h")).output.toString(), "one\ntwo\n");
  assert.equal((await cli("--since", "2200-01-01")).output.toString(), "");
  assert.equal((await cli("--since", "yesterday")).code, 2);
  const refused = await cli("--tail", "10001");
  assert.equal(refused.code, 1);
  assert.match(refused.errors, /at most 10000/);
});

test("following ends when the machine is deleted, with all lines printed", async (t) => {
  await started("followed", "echo first; sleep 1000");
  const follow = (verb: string) => startCli(t, ["machine", verb, "followed", "--follow"], { environment });
  const logs = follow("logs");
  const events = follow("events");
  const printed = { logs: "", events: "" };
  logs.child.stdout?.on("data", (chunk: Buffer) => {
    printed.logs += chunk.toString();
  });
  events.child.stdout?.on("data", (chunk: Buffer) => {
    printed.events += chunk.toString();
  });
  await until(() => printed.logs.includes("first") && printed.events.includes("machine started"), {
    what: "both to begin",
    deadlineMs: 30_000,
  });
  for (const verb of ["stop", "start"]) await runCli(t, ["machine", verb, "followed"], { environment });
  await until(() => printed.logs === "first\nfirst\n" && printed.events.includes("machine stopped"), {
    what: "both to continue",
    deadlineMs: 30_000,
  });
  await runCli(t, ["machine", "rm", "followed"], { environment });
  assert.deepEqual([(await logs.ran).code, (await events.ran).code], [0, 0]);
});

test("following continues after a server that ended, with each line once, until the machine is not found", async (t) => {
  const line = (second: number, message: string, source = "workload"): string => {
    const timestamp = `2026-01-01T00:00:0${second}.000Z`;
    return `data: ${JSON.stringify({ timestamp, level: "info", message, source })}\n\n`;
  };
  const lines = [line(1, "a"), line(2, "b"), line(2, "b")];
  const logs: Reply[] = [
    (_arrived, answer) => {
      answer.writeHead(200, { "content-type": "text/event-stream" });
      answer.write(lines.join(""), () => answer.destroy());
    },
    reply(503, "the server starts", { "retry-after": "60" }),
    // The same instant again, and a last line of a server whose clock is ahead.
    reply(200, [...lines, line(2, "b"), line(3, "c"), line(9, "the server stops", "node")].join("")),
    reply(200, [...lines, line(2, "b"), line(3, "c"), line(4, "d")].join("")),
    reply(404, "no machine"),
  ];
  const { url, arrived } = await startPeer(t, ...logs);
  const cli = ["machine", "logs", `mach-${"ab".repeat(16)}`, "--tail", "7"];
  const ran = await runCli(t, [...cli, "--follow"], { environment: { FLOTILLA_URL: url } });
  assert.deepEqual(
    [ran.code, ran.output.toString(), ran.errors],
    [0, "a\nb\nb\nb\nc\nd\n", "flotilla: the server stops\n"],
  );
  assert.deepEqual(
    arrived.map((call) => /tail=(\d+)/.exec(call.url)?.[1]),
    ["7", "10000", "10000", "10000", "10000"],
  );
  const broken = await startPeer(t, logs[0] ?? reply(500));
  const once = await runCli(t, cli, { environment: { FLOTILLA_URL: broken.url } });
  assert.equal(once.code, 1, "without --follow a part is not the whole");
});

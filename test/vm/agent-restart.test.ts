/**
 * The node agent is killed and stopped while commands and a terminal run in a real machine: their callers do
 * not notice.
 */
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { after, before, describe, test } from "node:test";
import { WebSocket } from "ws";
import { CommandStream, counting } from "../support/command-stream.ts";
import { serveUpgrades, Upgraded } from "../support/upgraded.ts";
import { type Flotilla, startFlotilla } from "../support/flotilla.ts";
import { until } from "../support/until.ts";
import { skipReason } from "./vm-fixture.ts";

const LONG = { deadlineMs: 60_000 };
const ENDINGS = ["kill", "stop", "kill"] as const;

describe("an agent that restarts", { skip: skipReason }, () => {
  let flotilla: Flotilla;
  let id: string;

  before(async () => {
    flotilla = await startFlotilla({ driver: "qemu" });
    const resources = { cpus: 1, memoryMb: 128, diskGb: 1 };
    ({ id } = await flotilla.create({ resources, ports: [{ port: 80 }, { port: 81 }], network: { mode: "blocked" } }));
    await flotilla.start(id);
  });
  after(() => flotilla?.[Symbol.asyncDispose]());

  const post = (path: string, body: object): Promise<Response> => {
    const { url, key } = flotilla.client();
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    return fetch(`${url}/v1/machines/${id}/${path}`, { method: "POST", headers, body: JSON.stringify(body) });
  };
  const stream = async (command: string): Promise<CommandStream> => {
    const response = await post("exec/stream?output=b64", { command, timeoutSeconds: 300 });
    assert.equal(response.status, 200);
    return new CommandStream(response);
  };
  const running = async (name: string): Promise<boolean> => (await flotilla.exec(id, "ps -o args")).includes(name);

  test("loses and repeats no byte of commands and of a terminal", async () => {
    const input = randomBytes(600_000).toString("hex");
    const numbers = await stream(counting("/tmp/go"));
    const fed = post("exec", {
      command: "touch /tmp/fed; until [ -e /tmp/go ]; do sleep 0.1; done; md5sum",
      stdin: input,
      timeoutSeconds: 300,
    });
    const { url, key } = flotilla.client();
    const path = `/v1/machines/${id}/exec/interactive?cmd=/bin/sh`;
    const headers = { authorization: `Bearer ${key}` };
    const socket = new WebSocket(`${url.replace("http", "ws")}${path}`, { headers });
    let shown = "";
    socket.on("message", (data: Buffer) => void (shown += data.toString()));
    await once(socket, "open");
    socket.send(Buffer.from("stty -echo; PS1=; echo rea''dy\n"));
    await until(() => shown.includes("ready"), { what: "the terminal", ...LONG });
    await until(() => flotilla.exec(id, "ls /tmp/fed"), { what: "the command with input", ...LONG });
    for (const [at, ending] of ENDINGS.entries()) {
      const before = numbers.stdout.length;
      await until(() => numbers.stdout.length > before + 1000, { what: "more numbers", ...LONG });
      await flotilla.nodes[0]?.[ending]();
      // Typed while there is no agent.
      socket.send(Buffer.from(`echo typed $((${at}+100))\n`));
      await flotilla.startNode();
      await until(() => shown.includes(`typed ${at + 100}`), { what: `what was typed, round ${at}`, ...LONG });
    }
    await flotilla.exec(id, "touch /tmp/go");
    await numbers.ended;
    assert.match(numbers.exit, /"?exit_?[cC]ode"?:\s*3/);
    const lines = numbers.stdout.trimEnd().split("\n");
    assert.ok(
      lines.every((line, index) => line === String(index + 1)),
      "every number once, in order",
    );
    const answer = await fed;
    const { stdout } = (await answer.json()) as { stdout: string };
    assert.equal(stdout.slice(0, 32), createHash("md5").update(input).digest("hex"));
    socket.send(Buffer.from("exit 6\n"));
    await once(socket, "close");
    const typed = ENDINGS.map((_ending, at) => `typed ${at + 100}`);
    assert.deepEqual(shown.match(/typed \d+/g), typed);
    assert.match(shown, /"code":6/);
  });

  test("loses and repeats no byte of upgraded connections", async () => {
    await serveUpgrades(flotilla, id, 80);
    const open = (path: string) => Upgraded.open(flotilla, { id, port: 80, path });
    const connections = await until(() => Promise.all([open("/echo"), open("/count")]), { what: "upgrades", ...LONG });
    // The peer is the gateway, as for a connection from outside.
    assert.match(
      await flotilla.exec(id, "cat /proc/net/tcp6"),
      /FFFF0000020000C0:0050 \w{16}FFFF0000010000C0:\w{4} 01 /,
    );
    for (const ending of ENDINGS) {
      for (const connection of connections) await connection.haveMore(300_000);
      await flotilla.nodes[0]?.[ending]();
      await flotilla.startNode();
    }
    for (const connection of connections) await connection.haveMore(300_000);
    for (const connection of connections) await connection.finish();
  });

  test("connects to no program that listens only on the loopback of the guest", async () => {
    await flotilla
      .client()
      .post(`/v1/machines/${id}/exec`, { command: ["sh", "-c", "busybox httpd -f -p 127.0.0.1:81"], background: true });
    await until(async () => (await flotilla.exec(id, "cat /proc/net/tcp")).includes("0100007F:0051"), {
      what: "the web server",
      ...LONG,
    });
    await assert.rejects(Upgraded.open(flotilla, { id, port: 81, path: "/echo" }), /ECONNREFUSED/);
  });

  test("ends a command whose caller left while there was no agent", async () => {
    const leave = new AbortController();
    const { url, key } = flotilla.client();
    const response = await fetch(`${url}/v1/machines/${id}/exec/stream`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({ command: "echo begun; sleep 4321" }),
      signal: leave.signal,
    });
    await response.body?.getReader().read();
    await flotilla.nodes[0]?.kill();
    leave.abort();
    await flotilla.startNode();
    await until(async () => !(await running("sleep 4321")), { what: "the command to end", ...LONG });
  });
});

/**
 * The client of the control channel, against scripted VMMs on the other end of a pair of streams.
 */
import assert from "node:assert/strict";
import { type Duplex, duplexPair } from "node:stream";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { Qmp, type QmpEvent } from "./qmp.ts";

const GREETING = '{"QMP": {"version": {}, "capabilities": []}}\r\n';

interface Request {
  readonly execute: string;
  readonly id: number;
}

/** Sends the greeting, and answers each line with `answer`. */
function scripted(answer: (request: Request) => string): { host: Duplex; vmm: Duplex } {
  const [host, vmm] = duplexPair();
  vmm.write(GREETING);
  vmm.on("data", (chunk: Buffer) => {
    for (const line of chunk.toString().trim().split("\n")) {
      if (!vmm.writableEnded) vmm.write(answer(JSON.parse(line) as Request));
    }
  });
  return { host, vmm };
}

const empty = ({ id }: Request): string => `{"return": {}, "id": ${id}}\r\n`;
const never = new AbortController().signal;

test("a command's result is returned, and events in between reach the listener", async () => {
  const events: QmpEvent[] = [];
  const { host } = scripted((request) =>
    request.execute === "query-status"
      ? `{"event": "STOP", "data": {"x": 1}}\n{"return": {"status": "paused"}, "id": ${request.id}}\n`
      : empty(request),
  );
  const qmp = await Qmp.connect(host, (event) => events.push(event), never);
  assert.deepEqual(await qmp.execute("query-status"), { status: "paused" });
  assert.deepEqual(events, [{ name: "STOP", data: { x: 1 } }]);
  qmp.close();
});

test("an error of QEMU rejects with its description and the command's name", async () => {
  const { host } = scripted((request) =>
    request.execute === "cont" ? `{"error": {"desc": "no"}, "id": ${request.id}}\n` : empty(request),
  );
  const qmp = await Qmp.connect(host, () => {}, never);
  await assert.rejects(qmp.execute("cont"), /^Error: cont: no$/);
  qmp.close();
});

test("an error whose description is not a text rejects all the same", async () => {
  const desc = '{"toString": 1, "valueOf": 1}';
  const { host } = scripted((request) =>
    request.execute === "cont" ? `{"error": {"desc": ${desc}}, "id": ${request.id}}\n` : empty(request),
  );
  const qmp = await Qmp.connect(host, () => {}, never);
  await assert.rejects(qmp.execute("cont"), /^Error: cont: an error without a description$/);
  qmp.close();
});

test("pending commands are rejected when the VMM ends", async () => {
  const { host, vmm } = scripted((request) => (request.execute === "stop" ? "" : empty(request)));
  const qmp = await Qmp.connect(host, () => {}, never);
  const waiting = qmp.execute("stop");
  vmm.end();
  await assert.rejects(waiting, /closed its control channel/);
  assert.match(await qmp.closed, /closed/);
  await assert.rejects(qmp.execute("cont"), /it has ended/);
});

for (const [what, bytes] of [
  ["a line without end", "x".repeat(1_100_000)],
  ["something that is not JSON", "{]\n"],
  ["an array", "[]\n"],
  ["a response without a command", '{"return": {}, "id": 99}\n'],
] as const) {
  test(`${what} ends the connection`, async () => {
    const { host, vmm } = scripted(empty);
    const qmp = await Qmp.connect(host, () => {}, never);
    vmm.write(bytes);
    assert.match(await qmp.closed, /control channel broke/);
  });
}

test("a line that comes byte by byte costs little more than its bytes", async () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const held = (): number => {
    collect();
    const { heapUsed, external } = process.memoryUsage();
    return heapUsed + external;
  };
  const { host, vmm } = scripted(empty);
  const qmp = await Qmp.connect(host, () => {}, never);
  const before = held();
  for (let count = 1; count <= 100_000; count += 1) {
    host.push(Buffer.allocUnsafeSlow(1).fill(" "));
    if (count % 1_000 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  assert(held() - before < 8_000_000);
  vmm.write('{"return": {}, "id": 99}\n');
  assert.match(await qmp.closed, /matches no command/);
});

test("cancelling before the greeting rejects", async () => {
  const [host] = duplexPair();
  const controller = new AbortController();
  const connecting = Qmp.connect(host, () => {}, controller.signal);
  controller.abort();
  await assert.rejects(connecting);
});

test("a connection that broke before it was used rejects", async () => {
  const { host } = scripted(empty);
  host.on("error", () => {});
  host.destroy(new Error("read ECONNRESET"));
  await assert.rejects(
    Qmp.connect(host, () => {}, never),
    /ECONNRESET/,
  );
});

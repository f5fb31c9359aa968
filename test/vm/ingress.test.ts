/**
 * Servers in real machines, reached through the bridge and by their address, as far as a real guest is
 * needed.
 */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { connect } from "node:net";
import { test } from "node:test";
import { type Flotilla, startFlotilla } from "../support/flotilla.ts";
import { until } from "../support/until.ts";
import { skipReason } from "./vm-fixture.ts";

const LONG = { deadlineMs: 60_000 };
const MIB = 1024 * 1024;

async function inBackground(flotilla: Flotilla, id: string, line: string): Promise<void> {
  const answer = await flotilla
    .client()
    .post(`/v1/machines/${id}/exec`, { command: ["sh", "-c", line], background: true });
  assert.equal(answer.status, 200, answer.text);
}

test("a web server in a machine is reachable in every way, and its end is reported", { skip: skipReason }, async () => {
  await using flotilla = await startFlotilla({ driver: "qemu" });
  const client = flotilla.client();
  const ports = [{ port: 80 }, { port: 81 }, { port: 82 }];
  const { id } = await flotilla.create({ ports, public: true, network: { mode: "blocked" } });
  await flotilla.start(id);
  await flotilla.exec(id, `busybox mkdir /www && busybox dd if=/dev/urandom of=/www/large bs=1M count=24 2>/dev/null`);
  const [sha256 = ""] = (await flotilla.exec(id, "busybox sha256sum /www/large")).split(" ");
  await inBackground(flotilla, id, "busybox httpd -f -p 80 -h /www");
  await inBackground(flotilla, id, "while :; do echo this is not HTTP | busybox nc -l -p 81; done");
  const bridge = (port: number, path: string) => client.get(`/v1/machines/${id}/connect/${port}${path}`);

  await until(async () => (await bridge(80, "/large")).status === 200, { what: "the web server", ...LONG });
  const { url } = (await client.get(`/v1/machines/${id}`)).json as { url: string };
  for (const [place, headers] of [
    [`${flotilla.urls[0]}/v1/machines/${id}/connect/80/large`, { authorization: `Bearer ${client.key}` }],
    [`${url}large`, {}],
  ] as const) {
    const answer = await fetch(place, { headers });
    const body = Buffer.from(await answer.arrayBuffer());
    assert.equal(answer.status, 200, place);
    assert.deepEqual([body.byteLength, createHash("sha256").update(body).digest("hex")], [24 * MIB, sha256], place);
  }
  assert.equal((await bridge(80, "/missing")).status, 404);
  const garbage = await until(
    async () => {
      const answer = await bridge(81, "/");
      return answer.text.includes("ECONNREFUSED") ? undefined : answer;
    },
    { what: "nc", ...LONG },
  );
  assert.deepEqual([garbage.status, garbage.headers.get("x-error-code")], [502, "guest_unreachable"]);
  assert.match(garbage.text, /gave no answer: /);
  const unused = await bridge(82, "/");
  assert.equal(unused.status, 502);
  assert.match(unused.text, /ECONNREFUSED/);

  // A reader that does not read keeps the answer open; the end of its machine must reach it all the same.
  const { hostname, port } = new URL(url);
  const reader = connect(Number(port), hostname);
  reader.write(`GET /proxy/${id}/large HTTP/1.1\r\nhost: x\r\n\r\n`);
  await once(reader, "readable");
  await flotilla.stop(id);
  let received = 0;
  reader.on("data", (chunk: Buffer) => (received += chunk.byteLength));
  reader.on("error", () => undefined);
  await until(() => reader.readableEnded || reader.destroyed, { what: "the end of the answer", ...LONG });
  assert.ok(received < 24 * MIB, `${received} bytes came from a machine that had stopped`);
  assert.equal((await bridge(80, "/")).status, 503);
  await flotilla.remove(id);
});

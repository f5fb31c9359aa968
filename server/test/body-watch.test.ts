/**
 * Bodies that stop arriving while they are read.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { type Clock, systemClock } from "@flotilla/base/clock";
import { head, wire } from "../../test/support/wire.ts";
import { until } from "../../test/support/until.ts";
import { BodyWatch } from "../src/fairness/body-watch.ts";

/** Time passes a thousand times as fast. */
const clock: Clock = {
  ...systemClock,
  monotonic: () => systemClock.monotonic() * 1000,
  timer: (ms, callback) => systemClock.timer(ms / 1000, callback),
};

const READERS: Readonly<Record<string, (message: IncomingMessage) => unknown>> = {
  events: (message) => message.on("data", () => undefined),
  "an iterator": (message) => message.toArray(),
};

for (const [name, read] of Object.entries(READERS)) {
  test(`a body that is read by ${name} and stops arriving ends its connection`, async (t) => {
    const broken = Promise.withResolvers<unknown>();
    const watch = new BodyWatch(clock);
    const server = createServer((message) => {
      watch.streamed(message, 60_000);
      message.on("error", broken.resolve);
      Promise.resolve(read(message)).catch(broken.resolve);
    });
    t.after(() => server.closeAllConnections());
    t.after(() => server.close());
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const caller = await wire(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    caller.send(`${head("POST", "/", null, { "content-length": "10" })}half`);
    await until(() => caller.isClosed(), { what: "the end of the connection" });
    assert.ok((await broken.promise) instanceof Error);
  });
}

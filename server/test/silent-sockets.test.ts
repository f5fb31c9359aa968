/**
 * WebSocket clients that fall silent, by a clock that the test moves.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { type Clock, systemClock } from "@flotilla/base/clock";
import { WebSocket } from "ws";
import { acceptWebSocket } from "../src/http/upgrade.ts";

const ROUND_TRIP_MS = 5;

interface Sleep {
  readonly endsAt: number;
  end(): void;
}

/** Its time does not pass until `pass` moves it to the end of the sleep that runs. */
class MovedClock implements Pick<Clock, "monotonic" | "sleep"> {
  time = 0;
  #sleep: Sleep | undefined;

  monotonic(): number {
    return this.time;
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      this.#sleep = { endsAt: this.time + ms, end: resolve };
      signal?.addEventListener("abort", () => resolve(), { once: true });
    });
  }

  pass(): void {
    const slept = this.#sleep;
    assert.ok(slept !== undefined, "something sleeps");
    this.time = Math.max(this.time, slept.endsAt);
    slept.end();
  }
}

test("a client is pinged every 30 seconds, and ended when it was silent for 90, however it fell silent", async (t) => {
  const moved = new MovedClock();
  const clock: Clock = {
    ...systemClock,
    monotonic: () => moved.monotonic(),
    sleep: (ms, signal) => moved.sleep(ms, signal),
  };
  const server = createServer().listen(0, "127.0.0.1");
  t.after(() => server.close());
  await once(server, "listening");
  const opened = new Promise<WebSocket>((resolve) => {
    server.on("upgrade", (message, socket, head) => {
      const closing = new AbortController().signal;
      acceptWebSocket({ message, socket, head, closing }, {}, { clock, onOpen: resolve });
    });
  });
  const { port } = server.address() as AddressInfo;
  const client = new WebSocket(`ws://127.0.0.1:${port}`, { autoPong: false });
  const closed = once(client, "close");
  const socket = await opened;
  await once(client, "open");
  const pingedAt: number[] = [];
  const isPinged = (): Promise<unknown> => once(client, "ping").then(() => pingedAt.push(moved.time));

  let pinged = isPinged();
  moved.pass();
  await pinged;
  moved.time += ROUND_TRIP_MS;
  const seen = once(socket, "pong");
  client.pong();
  await seen;
  const lastSeenAt = moved.time;
  while (socket.readyState === socket.OPEN) {
    pinged = isPinged();
    moved.pass();
    await Promise.race([pinged, closed]);
  }
  await closed;
  assert.deepEqual(pingedAt, [30_000, 60_000, 90_000, 120_000]);
  assert.equal(moved.time - lastSeenAt, 90_000);
});

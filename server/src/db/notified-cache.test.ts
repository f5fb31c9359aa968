/**
 * A cache that notifications keep fresh keeps nothing that may be out of date.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Channel } from "./database.ts";
import { NotifiedCache } from "./notified-cache.ts";

interface Callbacks {
  onPayload(payload: string): void;
  onGap(): void;
}

/** Notifications as the test sends them. */
class Notifications {
  isConnected = true;
  readonly listeners = new Map<Channel, Callbacks>();

  listen(channel: Channel, callbacks: Callbacks): () => void {
    this.listeners.set(channel, callbacks);
    return () => void this.listeners.delete(channel);
  }

  isListening(): boolean {
    return this.isConnected;
  }

  notify(channel: Channel, payload: string): void {
    this.listeners.get(channel)?.onPayload(payload);
  }
}

interface Key {
  readonly id: string;
}

async function filled(entriesMax = 10): Promise<{ sent: Notifications; cache: NotifiedCache<Key> }> {
  const sent = new Notifications();
  const changes = [
    { channel: "keys", concerns: ({ id }: Key, payload: string) => id === payload },
    { channel: "tenants" },
  ] as const;
  const cache = new NotifiedCache<Key>(sent, { entriesMax, changes });
  await cache.read("a", async () => ({ id: "key-a" }));
  await cache.read("b", async () => ({ id: "key-b" }));
  return { sent, cache };
}

const kept = (cache: NotifiedCache<Key>): string[] => ["a", "b", "c"].filter((key) => cache.get(key) !== undefined);

test("what was read is kept until a change that concerns it is notified", async () => {
  const { sent, cache } = await filled();
  assert.deepEqual(kept(cache), ["a", "b"]);
  sent.notify("keys", "key-a");
  assert.deepEqual(kept(cache), ["b"]);
});

test("a change that names none of the values drops all of them", async () => {
  const { sent, cache } = await filled();
  sent.notify("tenants", "tenant-1");
  assert.deepEqual(kept(cache), []);
});

test("a gap drops everything, on whichever channel it is found", async () => {
  for (const channel of ["keys", "tenants"] as const) {
    const { sent, cache } = await filled();
    sent.listeners.get(channel)?.onGap();
    assert.deepEqual(kept(cache), []);
  }
});

test("what is read while a change comes in is given once and not kept, even if the change concerns another value", async () => {
  const { sent, cache } = await filled();
  const answer = Promise.withResolvers<Key>();
  const reading = cache.read("c", () => answer.promise);
  sent.notify("keys", "key-of-somebody");
  answer.resolve({ id: "key-c" });
  assert.deepEqual(await reading, { id: "key-c" });
  assert.deepEqual(kept(cache), ["a", "b"]);
});

test("a change that this server makes drops at once, and what is read meanwhile is not kept", async () => {
  const { cache } = await filled();
  const answer = Promise.withResolvers<Key>();
  const reading = cache.read("c", () => answer.promise);
  cache.forget(({ id }) => id === "key-b");
  answer.resolve({ id: "key-c" });
  await reading;
  assert.deepEqual(kept(cache), ["a"]);
});

test("nothing is kept while no notifications arrive", async () => {
  const { sent, cache } = await filled();
  sent.isConnected = false;
  assert.deepEqual(await cache.read("c", async () => ({ id: "key-c" })), { id: "key-c" });
  assert.deepEqual(kept(cache), ["a", "b"]);
});

test("a key without a value and a read that fails leave nothing behind", async () => {
  const { cache } = await filled();
  assert.equal(await cache.read("c", async () => undefined), undefined);
  await assert.rejects(
    cache.read("c", async () => await Promise.reject(new Error("no database"))),
    /no database/,
  );
  assert.deepEqual(kept(cache), ["a", "b"]);
});

test("beyond its bound the entry that was kept first makes room", async () => {
  const { cache } = await filled(2);
  await cache.read("c", async () => ({ id: "key-c" }));
  assert.deepEqual(kept(cache), ["b", "c"]);
});

test("a closed cache listens to nothing and holds nothing", async () => {
  const { sent, cache } = await filled();
  cache.close();
  assert.equal(sent.listeners.size, 0);
  assert.deepEqual(kept(cache), []);
});

/**
 * The places for connections of strangers at a listener of the fleet.
 */
import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import { test } from "node:test";
import { Handshakes, HANDSHAKES_MAX, PER_ADDRESS_MAX } from "./handshakes.ts";

let ports = 0;

class Connection extends EventEmitter {
  readonly remoteAddress: string;
  readonly remotePort = ++ports;
  isDestroyed = false;

  constructor(remoteAddress: string) {
    super();
    this.remoteAddress = remoteAddress;
  }

  destroy(): void {
    this.isDestroyed = true;
    this.emit("close");
  }
}

const fill = (handshakes: Handshakes, addresses: readonly string[]): Connection[] => {
  const made = Array.from(
    { length: HANDSHAKES_MAX },
    (_, at) => new Connection(addresses[at % addresses.length] ?? ""),
  );
  for (const each of made) handshakes.begin(each);
  assert.equal(handshakes.size, HANDSHAKES_MAX);
  return made;
};

test("when 8 addresses hold all places, another address gets one, and the oldest connection of the others ends", () => {
  const handshakes = new Handshakes();
  const slow = fill(
    handshakes,
    Array.from({ length: 8 }, (_, at) => `10.0.0.${at}`),
  );
  const node = new Connection("10.0.1.1");
  handshakes.begin(node);
  assert.deepEqual([slow[0]?.isDestroyed, slow.filter(({ isDestroyed }) => isDestroyed).length], [true, 1]);
  assert.equal(handshakes.size, HANDSHAKES_MAX);
  // The addresses that hold the places replace only each other's connections.
  for (const address of ["10.0.0.0", "10.0.0.1", "10.0.0.2"]) handshakes.begin(new Connection(address));
  assert.equal(node.isDestroyed, false);
  handshakes.end(node);
  assert.equal(node.isDestroyed, false);
  assert.equal(handshakes.size, HANDSHAKES_MAX - 1);
});

test("256 addresses with one connection each keep no other one out", () => {
  const handshakes = new Handshakes();
  const slow = fill(
    handshakes,
    Array.from({ length: HANDSHAKES_MAX }, (_, at) => `10.1.${at}.1`),
  );
  const node = new Connection("10.0.1.1");
  handshakes.begin(node);
  assert.deepEqual([slow[0]?.isDestroyed, slow[1]?.isDestroyed], [true, false]);
});

test("an address has a bounded number of places, in IPv6 with its whole network, of which its oldest connection is replaced, and closed ones return theirs", () => {
  const handshakes = new Handshakes();
  const all = Array.from({ length: PER_ADDRESS_MAX }, (_, at) => new Connection(`2001:db8:0:1::${at}`));
  for (const each of all) handshakes.begin(each);
  handshakes.begin(new Connection("2001:db8:0:1:ffff::1"));
  assert.deepEqual([all[0]?.isDestroyed, all[1]?.isDestroyed], [true, false]);
  assert.equal(handshakes.size, PER_ADDRESS_MAX);
  handshakes.begin(new Connection("2001:db8:0:2::1"));
  handshakes.begin(new Connection("::ffff:10.0.0.1"));
  assert.equal(handshakes.size, PER_ADDRESS_MAX + 2);
  all[1]?.destroy();
  assert.equal(handshakes.size, PER_ADDRESS_MAX + 1);
});

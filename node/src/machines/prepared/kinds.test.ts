/**
 * What is prepared and discarded next: the order after a failure, which kind is displaced, the effect of
 * memory and time.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { PreparedVm } from "../../driver/driver.ts";
import type { UnpackedImage } from "../../images/images.ts";
import { type Kind, PreparedKinds, RETRY_MS_MIN, type Taker, type WaitingVm } from "./kinds.ts";
import { PREPARED_MB } from "./plan.ts";

const MINUTE = 60_000;
const PLENTY = { totalMemoryMb: 64_000, availableMemoryMb: 60_000, processorPressure: null };
const sizeOf = (memoryMb: number, machineId = "mach-1"): Taker => ({ cpus: 1, memoryMb, diskGb: 1, machineId });
const imageOf = (digest: string) => ({ digest }) as UnpackedImage;
const vmOf = (bootId: string): WaitingVm => ({ vm: { bootId } as PreparedVm, diskPath: null });

/** The kind that is prepared next. */
function turn(kinds: PreparedKinds, now: number): Kind {
  const next = kinds.next(PLENTY, now);
  if (next.kind !== "prepare") throw new Error(`there is ${next.kind} to do`);
  return next.of;
}

/** Prepares up to the target counts, without VMs. */
function fill(kinds: PreparedKinds, now: number): number {
  for (let count = 0; ; count += 1) {
    const next = kinds.next(PLENTY, now);
    if (next.kind !== "prepare") return count;
    next.of.waiting.push(vmOf(`${next.of.image?.digest ?? next.of.memoryMb}-${count}`));
  }
}

/** Discards all surplus, which frees its memory. Returns what was discarded. */
function empty(kinds: PreparedKinds, now: number, availableMemoryMb = PLENTY.availableMemoryMb): readonly string[] {
  const given: string[] = [];
  for (;;) {
    const next = kinds.next({ ...PLENTY, availableMemoryMb: availableMemoryMb + given.length * PREPARED_MB }, now);
    if (next.kind !== "discard") return given;
    given.push(next.vm.bootId);
  }
}

test("a kind that failed is tried after the others, later with each failure, and at most 15 minutes later", () => {
  const kinds = new PreparedKinds();
  kinds.keep(sizeOf(1), null, 1, 0);
  kinds.keep(sizeOf(2), null, 1, 0);
  let now = 0;
  const delays: number[] = [];
  for (let count = 0; count < 10; count += 1) {
    const kind = turn(kinds, now);
    assert.equal(kind.memoryMb, 1);
    delays.push(kinds.failed(kind, now));
    const delayMs = delays.at(-1) ?? 0;
    assert.equal(turn(kinds, now + delayMs - 1).memoryMb, 2);
    now += delayMs;
  }
  assert.deepEqual(delays.slice(0, 3), [RETRY_MS_MIN, 2 * RETRY_MS_MIN, 4 * RETRY_MS_MIN]);
  assert.equal(delays.at(-1), 15 * MINUTE);
  const kind = turn(kinds, now);
  kinds.succeeded(kind, 0);
  assert.equal(kinds.failed(kind, now), RETRY_MS_MIN);
});

test("the oldest kind is displaced by a new one together with its VMs, and permanent kinds never are", () => {
  const kinds = new PreparedKinds();
  kinds.keep(sizeOf(1), imageOf("first"), 1, 0);
  kinds.keep(sizeOf(1), null, 1, 0);
  for (let at = 1; at <= 6; at += 1) assert.deepEqual(kinds.take(sizeOf(1), imageOf(`i${at}`), at).displaced, []);
  fill(kinds, 6);
  assert.deepEqual(kinds.imageDigests, ["first", "i1", "i2", "i3", "i4", "i5", "i6"]);
  const first = kinds.find(sizeOf(1), imageOf("i1"));
  const { taken, displaced } = kinds.take(sizeOf(1), imageOf("i7"), 7);
  assert.equal(taken, undefined);
  assert.deepEqual(
    displaced.map(({ vm }) => vm.bootId.slice(0, 2)),
    ["i1"],
  );
  assert.deepEqual(first?.waiting, [], "they wait nowhere, so that their end discards none of them a second time");
  assert.deepEqual(kinds.imageDigests, ["first", "i2", "i3", "i4", "i5", "i6"]);
  // Wanted again, it is new.
  assert.equal(kinds.take(sizeOf(1), imageOf("i1"), 8).taken, undefined);
});

test("a kind that waits without a disk serves every size of disk, one with a disk only its own", () => {
  const kinds = new PreparedKinds();
  for (const image of [null, imageOf("i")]) kinds.keep(sizeOf(1), image, 1, 0);
  fill(kinds, 0);
  const large = { ...sizeOf(1), diskGb: 9 };
  assert.equal(kinds.take(large, imageOf("i"), 0).taken, undefined);
  assert.notEqual(kinds.take(large, null, 0).taken, undefined);
});

test("what was taken in a burst is prepared again, and half of it is discarded after each half-life without use", () => {
  const kinds = new PreparedKinds();
  for (let count = 0; count < 8; count += 1) kinds.take(sizeOf(1), null, 0);
  assert.equal(fill(kinds, MINUTE), 8);
  assert.equal(empty(kinds, 4 * MINUTE).length, 0);
  assert.equal(empty(kinds, 6 * MINUTE).length, 4);
  assert.equal(empty(kinds, 11 * MINUTE).length, 4);
  assert.equal(kinds.next(PLENTY, 11 * MINUTE).kind, "nothing");
});

test("machines that start one after another need one, also when another kind gave the first nothing", () => {
  const kinds = new PreparedKinds();
  for (let count = 0; count < 20; count += 1) {
    const [now, machineId] = [count * 5_000, `mach-${count}`];
    kinds.take(sizeOf(1, machineId), imageOf("i"), now);
    kinds.take(sizeOf(1, machineId), null, now + 100);
    kinds.started(machineId, now + 4_000);
  }
  assert.equal(fill(kinds, 100_000), 2);
});

test("when memory is short, kinds of low priority are discarded before anything is prepared", () => {
  const kinds = new PreparedKinds();
  kinds.keep(sizeOf(1), null, 2, 0);
  for (let count = 0; count < 4; count += 1) kinds.take(sizeOf(2), null, 0);
  assert.equal(fill(kinds, 0), 6);
  // By three of the six that wait below what stays free.
  const availableMemoryMb = PLENTY.totalMemoryMb * 0.2 - 3 * PREPARED_MB + 1;
  assert.deepEqual(
    empty(kinds, 0, availableMemoryMb).map((bootId) => bootId.slice(0, 2)),
    ["2-", "2-", "2-"],
  );
});

test("after a burst of one kind another one is prepared in turns with it", () => {
  const kinds = new PreparedKinds();
  kinds.keep(sizeOf(1), imageOf("new"), 3, 0);
  kinds.keep(sizeOf(1), null, 2, 0);
  for (let count = 0; count < 20; count += 1) kinds.take(sizeOf(1), imageOf("new"), 0);
  for (let count = 0; count < 4; count += 1) kinds.take(sizeOf(1), null, 0);
  const order: (string | undefined)[] = [];
  for (let count = 0; count < 10; count += 1) {
    const kind = turn(kinds, 0);
    order.push(kind.image?.digest);
    kind.waiting.push(vmOf(String(count)));
  }
  assert.deepEqual(order.slice(0, 8), ["new", undefined, "new", undefined, "new", undefined, "new", undefined]);
  assert.deepEqual(order.slice(8), ["new", "new"]);
});

test("how long a preparation takes is the median of the last ones, so a template that was made counts little", () => {
  const kinds = new PreparedKinds();
  for (let count = 0; count < 50; count += 1) kinds.take(sizeOf(1), null, 0);
  assert.equal(fill(kinds, 0), 30, "2 s are assumed");
  const [kind] = [kinds.find(sizeOf(1), null)];
  assert.ok(kind);
  kind.waiting.length = 0;
  for (const tookMs of [60_000, 3_000, 3_000]) kinds.succeeded(kind, tookMs);
  assert.equal(fill(kinds, 0), 20);
  for (let count = 0; count < 3; count += 1) kinds.succeeded(kind, 100);
  assert.equal(fill(kinds, 0), 30);
});

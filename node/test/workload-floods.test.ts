/**
 * Workloads that print more than the log takes: how much of their output the node agent holds, and that it is
 * all stored, in order and once, also by several agents in turn.
 */
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { systemClock } from "@flotilla/base/clock";
import { type NewEvent, printEvent } from "@flotilla/contract/event-types";
import { WORKLOAD_WINDOW_BYTES } from "@flotilla/contract/guest/frame";
import { until } from "../../test/support/until.ts";
import type { Guest, GuestWorkloadRequest } from "../src/guest/guest.ts";
import { makeLog } from "../src/log.ts";
import { MachineLog } from "../src/machines/workload/machine-log.ts";
import { Workload } from "../src/machines/workload/workload.ts";
import { hurriedClock, temporaryDirectory } from "./support/in-process.ts";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

const BOOT = "0123456789ab";
const HELD_BYTES_MAX = 2 * 1024 * 1024;
const run = { argv: ["program"], boot: BOOT, isEnding: () => false };

/** Prints `output`, like the guest agent: at most the window is unacknowledged. */
class PrintingGuest {
  readonly closed = new Promise<string>(() => {});
  readonly #output: Buffer;
  readonly #frameBytes: () => number;
  #request: GuestWorkloadRequest | null = null;
  #sentOffset = 0;
  #credit = 0;
  acknowledgedOffset = 0;

  constructor(output: Buffer, frameBytes: () => number) {
    this.#output = output;
    this.#frameBytes = frameBytes;
  }

  workload(request: GuestWorkloadRequest): ReturnType<Guest["workload"]> {
    this.#request = request;
    this.#sentOffset = request.offset;
    this.#credit = WORKLOAD_WINDOW_BYTES;
    const acknowledge = (offset: number, bytes: number): void => {
      assert.equal(this.#request, request, "acknowledged after the release");
      assert.ok(offset <= this.#sentOffset);
      this.acknowledgedOffset = offset;
      this.#credit += bytes;
      this.#send(request);
    };
    const started = Promise.resolve().then(() => this.#send(request));
    return { started, acknowledge };
  }

  get hasSentAll(): boolean {
    return this.#sentOffset === this.#output.byteLength;
  }

  end(exitCode: number): void {
    this.#request?.onEnd(exitCode);
  }

  #send(request: GuestWorkloadRequest): void {
    while (this.#credit > 0 && !this.hasSentAll) {
      const at = this.#sentOffset;
      // The listener copies what it keeps.
      const piece = Buffer.from(this.#output.subarray(at, at + Math.min(this.#frameBytes(), this.#credit)));
      this.#sentOffset += piece.byteLength;
      this.#credit -= piece.byteLength;
      request.onOutput(at, piece);
      piece.fill("?");
    }
  }

  asGuest(): Guest {
    return this as unknown as Guest;
  }
}

/** Keeps what is appended. Waits for `opened` before. */
class TestLog extends MachineLog {
  readonly appended: string[] = [];
  calls = 0;
  opened: Promise<void> = Promise.resolve();

  override async append(lines: Buffer | string): Promise<void> {
    this.calls += 1;
    const text = lines.toString("latin1");
    await this.opened;
    await super.append(lines);
    this.appended.push(text);
  }

  get lines(): readonly {
    readonly at: number;
    readonly offset: number;
    readonly kind: string;
    readonly text: string;
  }[] {
    const lines = this.appended.join("").split("\n").slice(0, -1);
    return lines.map((line) => {
      const [at = "", boot, offset = "", kind = "", ...text] = line.split(" ");
      assert.equal(boot, BOOT);
      return { at: Number(at), offset: Number(offset), kind, text: text.join(" ") };
    });
  }
}

function makeWorkload(machineLog: MachineLog, onEvent: (event: NewEvent) => void = () => {}): Workload {
  const clock = hurriedClock(1_000);
  const log = makeLog({ level: "warn", clock: systemClock, write: (line) => assert.fail(line) });
  return new Workload({ machineLog, clock, log, onEvent });
}

function heldBytes(): number {
  // The first collection may free buffers only after it has returned; the second waits for that.
  collectGarbage();
  collectGarbage();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

for (const frameBytes of [32 * 1024, 1]) {
  test(`a window of empty lines takes little memory while the log is slow, in frames of ${frameBytes} bytes`, async () => {
    await using directory = await temporaryDirectory();
    const output = Buffer.alloc(WORKLOAD_WINDOW_BYTES, "\n");
    const { promise: opened, resolve: open } = Promise.withResolvers<void>();
    const machines = Array.from({ length: 8 }, (_, at) => {
      const machineLog = new TestLog(join(directory.path, String(at)));
      machineLog.opened = opened;
      const guest = new PrintingGuest(output, () => frameBytes);
      return { machineLog, guest, workload: makeWorkload(machineLog) };
    });
    const before = heldBytes();
    for (const { workload, guest } of machines) await workload.attach(guest.asGuest(), run);
    const isFlooded = () => machines.every(({ guest, machineLog }) => guest.hasSentAll && machineLog.calls === 1);
    await until(isFlooded, { what: "a full window of each machine" });
    assert.ok(machines.every(({ guest }) => guest.acknowledgedOffset === 0));
    const held = (heldBytes() - before) / machines.length;
    open();
    await Promise.all(machines.map(({ workload }) => workload.release()));
    assert.ok(held < HELD_BYTES_MAX, `${Math.round(held / 1024)} KiB are held for each machine`);
  });
}

/** The same numbers in each run. */
function makeRandom(seed: number): (limit: number) => number {
  let state = seed;
  return (limit) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    return (state >>> 8) % limit;
  };
}

test("more than the log takes is stored in order and once, by several agents in turn", async () => {
  await using directory = await temporaryDirectory();
  const random = makeRandom(7);
  const texts = Array.from({ length: 150_000 }, (_, at) => (random(3) === 0 ? "" : `${at}`.padEnd(random(40), "-")));
  const output = Buffer.from(`${texts.join("\n")}\nunfinished`);
  const guest = new PrintingGuest(output, () => 1 + random(random(2) === 0 ? 3 : 5_000));
  const machineLog = new TestLog(join(directory.path, "logs"));
  const events: string[] = [];
  let workload = makeWorkload(machineLog, (event) => void events.push(printEvent(event).message));
  let agents = 0;
  do {
    agents += 1;
    await workload.release();
    workload = makeWorkload(machineLog, (event) => void events.push(printEvent(event).message));
    await workload.attach(guest.asGuest(), run);
    const batches = machineLog.appended.length + 1 + random(10);
    await until(() => guest.hasSentAll || machineLog.appended.length >= batches, { what: "some batches" });
    assert.ok(guest.acknowledgedOffset <= (machineLog.lines.at(-1)?.offset ?? 0));
  } while (!guest.hasSentAll);
  assert.ok(agents > 1);
  guest.end(3);
  await workload.finish();
  const { lines } = machineLog;
  const stored = lines.map(({ kind, text }) => (kind === "o" ? text : `${kind} ${text}`));
  assert.deepEqual(stored, [...texts, "unfinished", "e the workload ended with exit code 3"]);
  assert.equal(lines.at(-1)?.offset, output.byteLength);
  assert.deepEqual(events, ["the workload ended with exit code 3"]);
  const times = lines.map(({ at }) => at);
  assert.deepEqual(
    times,
    times.toSorted((one, other) => one - other),
  );
});

/** Prints a line when the one before was acknowledged. */
class LineByLineGuest {
  readonly closed = new Promise<string>(() => {});
  #left: number;

  constructor(lines: number) {
    this.#left = lines;
  }

  get hasSentAll(): boolean {
    return this.#left === 0;
  }

  workload(request: GuestWorkloadRequest): ReturnType<Guest["workload"]> {
    const print = (offset: number): void => {
      if (this.hasSentAll) return;
      this.#left -= 1;
      request.onOutput(offset, Buffer.from("\n"));
    };
    const started = Promise.resolve().then(() => print(0));
    return { started, acknowledge: (offset) => print(offset) };
  }
}

test("a workload whose lines come one by one has a bounded number of writes a second", async () => {
  await using directory = await temporaryDirectory();
  const machineLog = new TestLog(join(directory.path, "logs"));
  const [burst, more] = [2_048, 512];
  // Time passes only in sleeps.
  let now = 0;
  const sleep = (ms: number): Promise<void> => {
    now += ms;
    return Promise.resolve();
  };
  const clock = { ...systemClock, monotonic: () => now, sleep };
  const log = makeLog({ level: "warn", clock: systemClock, write: (line) => assert.fail(line) });
  const workload = new Workload({ machineLog, clock, log, onEvent: () => {} });
  const guest = new LineByLineGuest(burst + more);
  await workload.attach(guest as unknown as Guest, run);
  await until(() => guest.hasSentAll, { what: "all lines" });
  await workload.release();
  assert.equal(machineLog.calls, burst + more);
  assert.ok(now >= (more / 256) * 1000 - 10, `${more} writes after the burst took ${now} ms`);
});

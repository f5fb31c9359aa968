/**
 * What a guest says of its timer, by what its kernel says of it.
 */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { startAgent } from "./agent.ts";
import { makeDirectory } from "./shared-agent.ts";

const directory = makeDirectory(join(tmpdir(), "flotilla-timer-test-"));

/** /proc/timer_list of Linux 6.1 with one processor, from the devices on. */
const list = (device: string): string =>
  `Timer List Version: v0.9\ncpu: 0\n clock 0:\n  .base:       0000000091973098\n\nTick Device: mode:     1\nBroadcast device\n` +
  "Clock Event Device: <NULL>\ntick_broadcast_mask: 0\ntick_broadcast_oneshot_mask: 0\n\nTick Device: mode:     1\n" +
  `Per CPU device: 0\nClock Event Device: ${device}\n`;
const device = (mult: number | string, shift: number | string = 32): string =>
  list(
    `lapic\n max_delta_ns:   134217728\n min_delta_ns:   1000\n mult:           ${mult}\n shift:          ${shift}\n mode:           3`,
  );

async function reported(text: string): Promise<number | null> {
  const timerListPath = join(directory, "timer_list");
  writeFileSync(timerListPath, text);
  const agent = startAgent({ timerListPath });
  try {
    return (await agent.connect()).hello.timerKhz;
  } finally {
    await agent.end();
  }
}

test("a guest says how fast its kernel believes its timer to count", async () => {
  assert.equal(await reported(device(268_435_456)), 62_500);
  assert.equal(await reported(device(136_150_000)), 31_699);
  assert.equal(await reported(device(1_127_428_916)), 262_500);
});

test("a guest without a timer says so", async () => {
  assert.equal(await reported(list("<NULL>")), 0);
});

test("what the kernel's text does not say is unknown", async () => {
  assert.equal(await reported(""), null);
  assert.equal(await reported(list("lapic")), null);
  assert.equal(await reported(device("many")), null);
  assert.equal(await reported(device(268_435_456, 99)), null);
  assert.equal(await reported(device("99999999999999999999999")), null);
  assert.equal(await reported(`${"x".repeat(100_000)}${device(268_435_456)}`), null, "a longer text is cut");
});

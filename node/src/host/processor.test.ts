/**
 * Which differences between hosts give different processor identities.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { processorIdentity } from "./processor.ts";

const block = (flags: string, mhz: string): string =>
  [
    "processor\t: 0",
    "vendor_id\t: AuthenticAMD",
    "cpu family\t: 25",
    "model\t\t: 1",
    "model name\t: a processor",
    "stepping\t: 1",
    "microcode\t: 0xa0011d1",
    `cpu MHz\t\t: ${mhz}`,
    `flags\t\t: ${flags}`,
    "vmx flags\t: ept",
  ].join("\n");
const cpuinfo = `${block("fpu sse rdrand", "2300.0")}\n\n${block("fpu", "1.0")}\n`;
const identity = processorIdentity(cpuinfo, "6.1.0-40");

test("a feature, a revision, new microcode or another host kernel gives another identity", () => {
  const others = [
    cpuinfo.replace(" rdrand", ""),
    cpuinfo.replace("0xa0011d1", "0xa0011d2"),
    cpuinfo.replace("stepping\t: 1", "stepping\t: 2"),
    cpuinfo.replace("AuthenticAMD", "GenuineIntel"),
    cpuinfo.replace("cpu family\t: 25", "cpu family\t: 26"),
    cpuinfo.replace("model\t\t: 1", "model\t\t: 2"),
    cpuinfo.replace("vmx flags\t: ept", "vmx flags\t: ept vpid"),
  ];
  for (const other of others) assert.notEqual(processorIdentity(other, "6.1.0-40"), identity);
  assert.notEqual(processorIdentity(cpuinfo, "6.1.0-41"), identity);
});

test("the current clock rate and the other processors do not matter", () => {
  const slower = cpuinfo.replace("2300.0", "1200.0");
  assert.equal(processorIdentity(slower, "6.1.0-40"), identity);
  assert.equal(processorIdentity(block("fpu sse rdrand", "1.0"), "6.1.0-40"), identity);
});

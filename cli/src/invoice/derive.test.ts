/**
 * What intervals amount to, and how a cost is divided over machines.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Invoice, InvoiceInterval, InvoiceRate } from "@flotilla/sdk";
import { renderCsv } from "./csv.ts";
import { derive, priceOf } from "./derive.ts";
import { FOCUS_COLUMNS, focusRows } from "./focus.ts";

const JULY = { from: Date.UTC(2026, 6, 1), to: Date.UTC(2026, 7, 1) };
const time = (ms: number): string => new Date(ms).toISOString();
const rate = (id: string, from: number, until: number | null, cpu: number): InvoiceRate => ({
  ...{ id, activeFrom: time(from), activeUntil: until === null ? null : time(until) },
  ...{ cpuHourMicros: cpu, memoryGbHourMicros: 1, egressGbMicros: 1_000, registryGbHourMicros: 1 },
});
const interval = (fields: Partial<InvoiceInterval>): InvoiceInterval => ({
  ...{
    id: 1,
    machineId: "mach-a",
    bootId: "boot-a",
    meter: "cpu",
    quantity: 1,
    startedAt: time(JULY.from),
    endedAt: null,
  },
  ...{ countedUntil: time(JULY.to), recordedAt: time(JULY.from), rateId: null, keyId: null, labels: {} },
  ...fields,
});

test("an interval counts within the month only, and each part at the rate that held", () => {
  const rates = [rate("a", 0, JULY.to - 1000, 1), rate("b", JULY.to - 1000, null, 2)];
  const long = interval({ quantity: 3, startedAt: time(JULY.from - 5000), countedUntil: time(JULY.to + 5000) });
  const sums = derive([long], rates, JULY);
  assert.deepEqual(
    [...sums],
    [
      ["cpu a", 3n * BigInt(JULY.to - JULY.from - 1000)],
      ["cpu b", 3000n],
    ],
  );
});

test("an interval that names another rate than the one that held is a difference, as is a gap between rates", () => {
  assert.throws(() => derive([interval({ rateId: "b" })], [rate("a", 0, null, 1)], JULY), /another price/);
  assert.throws(() => derive([interval({})], [rate("a", JULY.from + 1, null, 1)], JULY), /no price/);
});

test("a price is rounded down once, however large the sum is", () => {
  const memory: InvoiceRate = { ...rate("a", 0, null, 0), memoryGbHourMicros: 999_999_937 };
  assert.equal(priceOf("memory", 10n ** 22n + 7n, memory), ((10n ** 22n + 7n) * 999_999_937n) / 3_686_400_000n);
  assert.equal(priceOf("disk", 10n ** 22n, memory), 0n);
});

test("costs of machines add up to the line, although each is a whole number of micros", () => {
  const intervals = ["a", "b", "c", "d"].map((name, id) =>
    interval({ id, machineId: `mach-${name}`, countedUntil: time(JULY.from + 1_000_001 + id) }),
  );
  const rates = [rate("a", 0, null, 7777)];
  const amount = derive(intervals, rates, JULY).get("cpu a") ?? 0n;
  const micros = Number(priceOf("cpu", amount, rates[0]));
  const line = { kind: "usage", month: "2026-07", meter: "cpu", rateId: "a", amount: String(amount), micros } as const;
  const invoice = { id: "2026-07", tenantId: "t", from: time(JULY.from), to: time(JULY.to), lines: [line], rates };
  const rows = focusRows(invoice as unknown as Invoice, intervals);
  const cost = FOCUS_COLUMNS.indexOf("BilledCost");
  const sum = rows.reduce((total, row) => total + Math.round(Number(row[cost]) * 1e6), 0);
  assert.deepEqual([rows.length, sum], [4, micros]);
});

test("an export has a row for each machine, key and set of labels, with the labels as tags", () => {
  const given = [
    { keyId: "key-a", labels: { team: "red", "cost.center": "7" } },
    { keyId: "key-b", labels: { app: "shop", team: "red" } },
    { keyId: null, labels: {} },
    { keyId: "key-a", labels: { "cost.center": "7", team: "red" } },
  ];
  const intervals = given.map((fields, id) => interval({ id, countedUntil: time(JULY.from + 3_600_000), ...fields }));
  const rates = [rate("a", 0, null, 100)];
  const line = { kind: "usage", month: "2026-07", meter: "cpu", rateId: "a", amount: "14400000", micros: 400 } as const;
  const adjustment = { ...line, kind: "adjustment", month: "2026-06", amount: "-5", micros: -1 } as const;
  const fields = { id: "2026-07", tenantId: "t", from: time(JULY.from), to: time(JULY.to) };
  const rows = focusRows({ ...fields, lines: [line, adjustment], rates } as unknown as Invoice, intervals);
  const cell = (name: (typeof FOCUS_COLUMNS)[number]) => rows.map((row) => row[FOCUS_COLUMNS.indexOf(name)]);
  assert.deepEqual(cell("x_ApiKeyId"), ["", "key-a", "key-b", ""]);
  assert.deepEqual(cell("x_App"), ["", "", "shop", ""]);
  assert.deepEqual(cell("Tags"), ["{}", '{"cost.center":"7","team":"red"}', '{"app":"shop","team":"red"}', "{}"]);
  assert.deepEqual(cell("ConsumedQuantity"), ["3600000", "7200000", "3600000", "-5"]);
  assert.ok(rows.every((row) => row.length === FOCUS_COLUMNS.length));
});

test("a cell of CSV with a quote, a comma or a line feed is quoted, and none is a formula", () => {
  assert.equal(
    renderCsv(
      ["a", "b"],
      [
        ['x"y,z', "=1+1"],
        ["-5", "two\nlines"],
      ],
    ),
    'a,b\n"x""y,z",\'=1+1\n-5,"two\nlines"',
  );
});

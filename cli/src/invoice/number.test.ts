/**
 * The numbers of invoices as text.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { numberOf } from "./number.ts";

test("a number is shown with its series, once there is one", () => {
  assert.equal(numberOf({ series: null, number: 17 }), "17");
  assert.equal(numberOf({ series: "20260723T120000Z", number: 17 }), "20260723T120000Z-17");
  assert.equal(numberOf({ series: null, number: null }), "");
});

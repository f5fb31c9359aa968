/**
 * What makes two templates of one size different.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { templateIngredients } from "./template.ts";

const made = {
  qemuVersion: "7.2",
  guestFiles: { key: "guest" },
  accelerator: "kvm",
  tscKhz: null,
  processor: "one",
  hasNetwork: true,
} as const;

test("with KVM a template belongs to the processor that it was made on", () => {
  assert.notEqual(templateIngredients(made), templateIngredients({ ...made, processor: "other" }));
});

test("an emulated template goes on after the host's processor has changed", () => {
  const emulated = { ...made, accelerator: "tcg" } as const;
  assert.equal(templateIngredients(emulated), templateIngredients({ ...emulated, processor: "other" }));
});

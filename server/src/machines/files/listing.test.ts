/**
 * How much the lists of directories may hold.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { ListedFile } from "@flotilla/contract/link/files";
import { Budget } from "../../fairness/budget.ts";
import { LIST_BYTES_MAX, Listing, listingBudget } from "./listing.ts";

const entry = (name: string): ListedFile => ({ name, kind: "file", mode: "0644", size: 1, modifiedAt: 0 });
const LONG = "\u0001".repeat(4_000);

/** Adds entries until one is refused. */
function fill(listing: Listing): { readonly code: string; readonly message: string } {
  for (let count = 0; count < 100_000; count += 1) {
    try {
      listing.add(entry(`${LONG}${count}`));
    } catch (error) {
      return error as { code: string; message: string };
    }
  }
  throw new Error("all entries were accepted");
}

test("a list is sorted by name and has the fields of an entry", () => {
  using listing = new Listing({ budget: listingBudget(), tenantId: "a", path: "/x" });
  for (const name of ["b", "a", "ä"]) listing.add(entry(name));
  const list = JSON.parse(listing.toJson()) as { name: string }[];
  assert.deepEqual(list[0], { name: "a", kind: "file", mode: "0644", size: 1, modifiedAt: "1970-01-01T00:00:00.000Z" });
  assert.deepEqual(
    list.map(({ name }) => name),
    ["a", "b", "ä"],
  );
});

test("a list whose names are long is refused before it is large", () => {
  const budget = listingBudget();
  using listing = new Listing({ budget, tenantId: "a", path: "/workspace/x" });
  const { code, message } = fill(listing);
  assert.equal(code, "conflict");
  assert.match(message, /^the list of \/workspace\/x is larger than .* ls -f$/);
  assert.ok(budget.total <= 2 * LIST_BYTES_MAX);
});

test("lists of a tenant and of all share what is held, and give it back", () => {
  const budget = new Budget({ perHolder: 200_000, all: 300_000 });
  const listing = (tenantId: string): Listing => new Listing({ budget, tenantId, path: "/x" });
  using first = listing("a");
  assert.equal(fill(first).code, "rate_limited");
  using second = listing("a");
  assert.equal(fill(second).code, "rate_limited");
  using third = listing("b");
  assert.equal(fill(third).code, "unavailable");
  for (const one of [first, second, third]) one[Symbol.dispose]();
  assert.equal(budget.total, 0);
});

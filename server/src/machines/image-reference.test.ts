/**
 * References that are refused before anything is written or asked.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Refusal } from "@flotilla/contract/errors";
import { RegistryList } from "@flotilla/contract/registries";
import { checkReference } from "./image-reference.ts";

const list = new RegistryList({ allowed: null, mirrors: new Map(), insecure: [] });

function refusalOf(text: string): string {
  try {
    checkReference(list, text);
    return "";
  } catch (error) {
    assert.ok(error instanceof Refusal);
    return `${error.code}: ${error.message}`;
  }
}

test("images of allowed registries and local ones may be used", () => {
  for (const text of ["alpine", "ghcr.io/team/app:v1", "local/busybox"]) assert.equal(refusalOf(text), "", text);
});

test("an image of another registry is refused with the name of the setting", () => {
  for (const text of ["127.0.0.1:5000/x", "localhost/x", "2130706433:80/x", "[::1]:5000/x", "10.0.0.1:80/x"])
    assert.match(refusalOf(text), /^invalid_request: images of registry .*FLOTILLA_ALLOWED_REGISTRIES/, text);
});

test("a text that is not a reference is refused", () => {
  assert.match(refusalOf("al pine"), /^invalid_request: image reference "al pine" is not valid/);
});

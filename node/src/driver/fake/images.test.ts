/**
 * The fake driver's images behave like a real node's where a server can notice.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { REFERENCES_PER_OWNER } from "../../images/images.ts";
import { FakeImages } from "./images.ts";

test("a tenant that fetches more images than it may have loses its oldest, and no other tenant's", async () => {
  const images = new FakeImages(systemClock, "amd64");
  const fetch = (reference: string, tenantId: string) => images.ensure(reference, { arch: null, tenantId });
  await fetch("first", "other");
  for (let n = 0; n <= REFERENCES_PER_OWNER; n += 1) await fetch(`image-${n}`, "many");
  const references = (await images.list("many")).map(({ reference }) => reference);
  assert.equal(references.filter((reference) => reference.startsWith("image-")).length, REFERENCES_PER_OWNER);
  assert.ok(!references.includes("image-0") && references.includes(`image-${REFERENCES_PER_OWNER}`));
  assert.ok((await images.list("other")).some(({ reference }) => reference === "first"));
});

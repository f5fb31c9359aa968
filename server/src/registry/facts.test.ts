/**
 * What annotations of a manifest say of a machine's disk.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { MACHINE_ARTIFACT_TYPE, PACKAGE_ANNOTATIONS } from "@flotilla/contract/package-artifact";
import { factsOf } from "./facts.ts";

const { diskBytes, architecture, imageReference, machineId } = PACKAGE_ANNOTATIONS;
const SIZE = { [diskBytes]: "1073741824", [architecture]: "amd64" };

test("facts are read from the annotations of a machine's manifest", () => {
  assert.deepEqual(factsOf(MACHINE_ARTIFACT_TYPE, { ...SIZE, [imageReference]: "alpine", [machineId]: "mach-1" }), {
    ...{ diskBytes: 1_073_741_824, architecture: "amd64", imageReference: "alpine", imageDigest: null },
    machineId: "mach-1",
  });
});

test("what is not a machine's disk, or lacks its size, has no facts", () => {
  for (const type of [null, "application/vnd.other"]) assert.equal(factsOf(type, SIZE), null);
  for (const said of [null, undefined, 1, [], {}, { ...SIZE, [diskBytes]: 5 }, { ...SIZE, [architecture]: "" }])
    assert.equal(factsOf(MACHINE_ARTIFACT_TYPE, said), null);
  for (const size of ["", "0", "-1", "1e9", "0x10", " 1", "9".repeat(17), "9".repeat(40)])
    assert.equal(factsOf(MACHINE_ARTIFACT_TYPE, { ...SIZE, [diskBytes]: size }), null, size);
});

test("texts are bounded, whatever annotations are", () => {
  fc.assert(
    fc.property(fc.dictionary(fc.constantFrom(...Object.values(PACKAGE_ANNOTATIONS)), fc.anything()), (said) => {
      const facts = factsOf(MACHINE_ARTIFACT_TYPE, { ...SIZE, ...said });
      return facts === null || [facts.imageReference, facts.machineId].every((text) => (text?.length ?? 0) <= 512);
    }),
  );
  assert.equal(factsOf(MACHINE_ARTIFACT_TYPE, { ...SIZE, [imageReference]: "a\0b" })?.imageReference, null);
});

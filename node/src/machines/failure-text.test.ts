/**
 * What owners read when the host's file system refuses.
 */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { messageOf } from "@flotilla/base/errors";
import { failureText } from "./failure-text.ts";

const nodeDirectory = join(import.meta.dirname, "no-such-directory");
const diskPath = join(nodeDirectory, "machines/mach-0/disk");
const places = { nodeDirectory, diskPath };
const missing = (path: string): Promise<unknown> => readFile(path).catch((error: unknown) => error);

test("a missing disk is named, with what to do, also by the error of a driver", async () => {
  const error = await missing(diskPath);
  for (const thrown of [error, new Error(`the VM did not start: ${messageOf(error)}`)])
    assert.match(failureText(thrown, places), /^its disk is missing .* an operator can put the file back/);
});

test("an error of another file has its place on the node, but not on the host", async () => {
  const text = failureText(await missing(`${diskPath}-2`), places);
  assert.equal(text, "ENOENT: no such file or directory, open 'machines/mach-0/disk-2'");
});

test("any other error keeps its text and that of its cause", () => {
  assert.equal(failureText(new Error("no boot", { cause: new Error("no kernel") }), places), "no boot: no kernel");
  assert.equal(failureText("odd", places), "odd");
});

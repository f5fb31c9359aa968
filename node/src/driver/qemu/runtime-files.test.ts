/**
 * Parsing the list of a program's libraries.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { librariesIn, outermost } from "./runtime-files.ts";

test("libraries and the loader are found in the output of ldd, without the kernel's", () => {
  const text = [
    "\tlinux-vdso.so.1 (0x00007ffd3d5f5000)",
    "\tlibpixman-1.so.0 => /lib/x86_64-linux-gnu/libpixman-1.so.0 (0x00007f0d7b200000)",
    "\tlibgone.so.1 => not found",
    "\t/lib64/ld-linux-x86-64.so.2 (0x00007f0d7d3b5000)",
  ].join("\n");
  assert.deepEqual(librariesIn(text), ["/lib/x86_64-linux-gnu/libpixman-1.so.0", "/lib64/ld-linux-x86-64.so.2"]);
});

test("a directory inside another is not listed separately", () => {
  assert.deepEqual(outermost(["/usr/lib/x", "/usr/lib/x/pulse", "/usr/lib/xy", "/usr/lib/x"]), [
    "/usr/lib/x",
    "/usr/lib/xy",
  ]);
});

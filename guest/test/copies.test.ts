/**
 * The agent's copies of many bytes are the library's: an emulator makes one step for each byte of `rep
 * movsb`.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { GUEST_DIRECTORY } from "./agent.ts";

/** A compiler that writes the assembly of kept.c, with build.sh's own options, instead of a program. */
const COMPILER = `#!/bin/sh
for argument; do
  case $argument in
  *.c | -static | -s | -o | -Wl,* | *.new) ;;
  *) options="$options $argument" ;;
  esac
  case $argument in *.new) out=$argument ;; esac
done
exec cc $options -S -o "$out" "$GUEST/kept.c"
`;

test("what a resumable command writes is kept without copying byte by byte", (t) => {
  const directory = mkdtempSync(join(tmpdir(), "flotilla-copies-"));
  t.after(() => rmSync(directory, { recursive: true }));
  const compiler = join(directory, "cc");
  writeFileSync(compiler, COMPILER);
  chmodSync(compiler, 0o755);
  const env = { ...process.env, CC: compiler, GUEST: GUEST_DIRECTORY };
  const built = spawnSync("sh", [join(GUEST_DIRECTORY, "build.sh"), directory], { env, encoding: "utf8" });
  assert.equal(built.status, 0, built.stderr);
  const assembly = readFileSync(join(directory, "agent"), "utf8");
  assert.match(assembly, /kept_append/);
  assert.doesNotMatch(assembly, /rep\s*movsb/);
});

/**
 * What set-up installs on which distribution, and what it prints where it can install nothing.
 *
 * The latter runs the script with few programs in PATH, and with a temporary cache directory.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { makeDisk } from "../../server/test/support/disk.ts";

const ROOT = join(import.meta.dirname, "../..");
/** All programs that set-up calls before it installs anything, except `uname`. */
const FEW = ["sh", "dirname", "id", "mkdir", "cat", "sed", "rm", "cp"];

function osRelease(id: string, version: string): string {
  return `PRETTY_NAME="Some Linux"\nNAME="Some"\nVERSION_ID="${version}"\nID=${id}\nID_LIKE="debian"\n`;
}

function packages(text: string, ...options: readonly string[]) {
  const { status, stdout } = spawnSync("sh", [join(ROOT, "scripts/packages"), ...options], {
    input: text,
    encoding: "utf8",
  });
  const lines = stdout.trim().split("\n");
  return { status, lines, names: lines.map((line) => line.split("=")[0] ?? "") };
}

function setUp(t: TestContext, processor: string) {
  const directory = mkdtempSync(join(tmpdir(), "flotilla-setup-"));
  t.after(() => rmSync(directory, { recursive: true }));
  const programs = join(directory, "programs");
  const cache = join(directory, "cache");
  spawnSync("mkdir", [programs]);
  for (const name of FEW) {
    symlinkSync(
      spawnSync("sh", ["-c", `command -v ${name}`], { encoding: "utf8" }).stdout.trim(),
      join(programs, name),
    );
  }
  writeFileSync(join(programs, "uname"), `#!/bin/sh\necho ${processor}\n`, { mode: 0o755 });
  const { status, stdout, stderr } = spawnSync("/bin/sh", [join(ROOT, "scripts/setup")], {
    env: { PATH: programs, FLOTILLA_CACHE_DIR: cache, HOME: directory },
    encoding: "utf8",
  });
  return { status, stdout, stderr, made: readdirSync(directory) };
}

describe("the packages of a distribution", () => {
  for (const [id, version, sanitizers] of [
    ["debian", "12", "libclang-rt-14-dev"],
    ["debian", "13", "libclang-rt-19-dev"],
    ["ubuntu", "22.04", "libclang-common-14-dev"],
    ["ubuntu", "24.04", "libclang-rt-18-dev"],
  ] as const) {
    it(`are known for ${id} ${version}`, () => {
      const running = packages(osRelease(id, version));
      assert.equal(running.status, 0);
      assert.ok(running.lines.includes("qemu-system-x86=qemu-system-x86_64"), running.lines.join(" "));
      assert.ok(!running.names.includes(sanitizers), "packages that only tests need");
      const testing = packages(osRelease(id, version), "--test");
      assert.equal(testing.status, 0);
      assert.ok(testing.names.includes(sanitizers), testing.names.join(" "));
      // Only tests need the program itself.
      assert.deepEqual(
        running.lines.filter((line) => !testing.lines.includes(line)),
        ["docker-registry="],
      );
      assert.ok(testing.lines.includes("docker-registry=docker-registry"));
    });
  }

  it("leave out the package that Ubuntu does not have, so that set-up only looks for the program", () => {
    const { lines } = packages(osRelease("ubuntu", "24.04"), "--test");
    assert.ok(lines.includes("=chromium-headless-shell"), lines.join(" "));
  });

  it("are Debian's for any other distribution, and the status says so", () => {
    const known = packages(osRelease("debian", "13")).lines;
    for (const text of [
      osRelease("debian", "11"),
      osRelease("ubuntu", "12"),
      "ID=fedora\nVERSION_ID=41\n",
      "ID=arch",
      "",
    ]) {
      const { status, lines } = packages(text);
      assert.equal(status, 1, text);
      assert.deepEqual(lines, known, text);
    }
  });

  it("are found whichever quotes the host's description has, and without a newline at its end", () => {
    for (const text of ["ID='debian'\nVERSION_ID='12'", "ID=debian\nVERSION_ID=12", 'VERSION_ID="12"\nID="debian"\n']) {
      assert.equal(packages(text).status, 0, text);
    }
  });
});

describe("set-up", () => {
  it("lists all missing programs in one message, and where it looked, where it cannot install packages", (t) => {
    const { status, stderr } = setUp(t, "x86_64");
    assert.equal(status, 1, stderr);
    for (const program of ["qemu-system-x86_64", "qemu-img", "umoci", "busybox", "cc", "make"]) {
      assert.match(stderr, new RegExp(`^setup: +${program} \\(\\S+\\)$`, "m"));
    }
    assert.match(stderr, /looked for in PATH, then in \/usr\/local\/sbin, \/usr\/sbin and \/sbin/);
  });

  it("refuses another processor before it changes anything", (t) => {
    const { status, stdout, stderr, made } = setUp(t, "aarch64");
    assert.equal(status, 1);
    assert.match(stderr, /need an x86-64 host for now; this one is aarch64/);
    assert.equal(stdout, "");
    assert.deepEqual(made, ["programs"]);
  });
});

it("a cache without room for the guest kernel is named before anything is fetched", {
  skip: process.getuid?.() === 0 ? false : "mounting a file system needs root",
}, (t) => {
  const cache = makeDisk(t, "20m");
  const { status, stdout, stderr } = spawnSync("sh", [join(ROOT, "scripts/setup")], {
    env: { ...process.env, FLOTILLA_CACHE_DIR: cache },
    encoding: "utf8",
  });
  assert.equal(status, 1);
  assert.match(
    stderr,
    /^setup: \S+ has \d+ MB left, and the guest kernel needs 160: make room, or set FLOTILLA_CACHE_DIR/m,
  );
  assert.doesNotMatch(stdout, /fetching/);
});

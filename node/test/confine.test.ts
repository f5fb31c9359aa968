/**
 * What a program that reads an image can reach of the host: a script that is confined like the builders of
 * images calls the kernel directly.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, readlinkSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { launcherPath } from "../../test/support/launcher.ts";
import { type Capability, runConfined } from "../src/images/confine.ts";
import { temporaryDirectory } from "./support/in-process.ts";

const skip = process.getuid?.() !== 0 ? "only root can confine" : process.arch !== "x64" && "calls have other numbers";
const EPERM = 1;
const ENOSYS = 38;

interface Builder {
  readonly capabilities: readonly Capability[];
  /** Its capabilities as a number. */
  readonly bits: number;
  readonly hasOwnUsers: boolean;
}

const BUILDERS: Readonly<Record<string, Builder>> = {
  "mkfs.ext4, which reads files of every owner": { capabilities: ["dac_override"], bits: 0b10, hasOwnUsers: true },
  "tar, which has no capability": { capabilities: [], bits: 0, hasOwnUsers: true },
  "umoci, which makes device files": {
    capabilities: ["chown", "dac_override", "fowner", "fsetid", "setfcap", "mknod"],
    bits: 0x8800001b,
    hasOwnUsers: false,
  },
};

/** Number and first arguments. */
const REFUSED: Readonly<Record<string, readonly number[]>> = {
  name_to_handle_at: [303],
  ptrace: [101],
  process_vm_readv: [310],
  perf_event_open: [298],
  mount: [165],
  umount2: [166],
  pivot_root: [155],
  chroot: [161],
  setns: [308],
  unshare: [272, 0x10000000],
  "clone into a user namespace": [56, 0x10000000],
  socket: [41, 1, 1],
  add_key: [248],
  keyctl: [250],
  bpf: [321],
  userfaultfd: [323],
  io_uring_setup: [425],
  io_uring_enter: [426],
  io_uring_register: [427],
  open_tree: [428],
  move_mount: [429],
  fsopen: [430],
  clone3: [435],
  pidfd_getfd: [438],
  mount_setattr: [442],
  "a call newer than the filter": [510],
  "a call with 32-bit pointers": [0x40000000 + 39],
};

/** Prints the error of open_by_handle_at, then of each call, then of `mkdir`, which is permitted. */
const CALLS = String.raw`
my ($type, $hex, @calls) = @ARGV;
my $handle = pack("Ll", length($hex) / 2, $type) . pack("H*", $hex);
open(my $files, "<", "/files") or die "/files: $!";
sub report { print $_[0] < 0 ? $! + 0 : 0, "\n" }
report(syscall(304, fileno($files), $handle, 0));
for my $call (@calls) {
  my @numbers = map { $_ + 0 } split(/,/, $call);
  report(syscall(shift @numbers, @numbers, (0) x (6 - @numbers)));
}
my $made = "/files/made";
report(syscall(83, $made, 0700));
`;

/** Prints type and bytes of a directory's handle. */
const HANDLE_OF = String.raw`
my $path = $ARGV[0];
my $handle = pack("Ll", 128, 0) . "\0" x 128;
my $mount = pack("l", 0);
syscall(303, -100, $path, $handle, $mount, 0) == 0 or die "name_to_handle_at: $!";
my ($bytes, $type) = unpack("Ll", $handle);
print "$type ", unpack("H*", substr($handle, 8, $bytes));
`;

test("a program that reads an image has a bounded amount of memory", { skip }, async () => {
  await using directory = await temporaryDirectory();
  const allocate = async (size: string): Promise<string> =>
    runConfined({
      launcher: await launcherPath(),
      directory: directory.path,
      capabilities: [],
      argv: ["dd", "if=/usr/bin/true", "of=/files/copy", `bs=${size}`, "count=1"],
      timeoutMs: 60_000,
      signal: new AbortController().signal,
      clock: systemClock,
    });
  await allocate("700M");
  await assert.rejects(allocate("1100M"), /memory exhausted/);
});

for (const [who, { capabilities, bits, hasOwnUsers }] of Object.entries(BUILDERS)) {
  test(`${who}, cannot reach beyond its tree`, { skip }, async () => {
    await using directory = await temporaryDirectory();
    const run = async (...argv: readonly string[]): Promise<readonly string[]> => {
      const output = await runConfined({
        launcher: await launcherPath(),
        directory: directory.path,
        inputs: { program: join(directory.path, "program"), proc: "/proc" },
        capabilities,
        argv,
        timeoutMs: 60_000,
        signal: new AbortController().signal,
        clock: systemClock,
      });
      return output.trim().split("\n");
    };
    writeFileSync(join(directory.path, "program"), CALLS);
    mkdirSync(join(directory.path, "secret"));
    const handle = execFileSync("perl", ["-e", HANDLE_OF, join(directory.path, "secret")], { encoding: "utf8" });
    const calls = Object.values(REFUSED).map((call) => call.join(","));
    const [byHandle, ...errors] = await run("perl", "/input/program", ...handle.split(" "), ...calls);
    assert.equal(Number(byHandle), EPERM, "open_by_handle_at");
    for (const [at, name] of Object.keys(REFUSED).entries())
      assert.ok([EPERM, ENOSYS].includes(Number(errors[at])), `${name}: ${errors[at]}`);
    assert.equal(errors.at(-1), "0", "mkdir");
    assert.ok(statSync(join(directory.path, "files", "made")).isDirectory());

    const status = (await run("cat", "/input/proc/self/status")).join("\n");
    for (const set of ["CapPrm", "CapEff", "CapBnd"])
      assert.match(status, new RegExp(`^${set}:\\s${bits.toString(16).padStart(16, "0")}$`, "m"));
    for (const set of ["CapInh", "CapAmb"]) assert.match(status, new RegExp(`^${set}:\\s0{16}$`, "m"));
    assert.match(status, /^NoNewPrivs:\s1$/m);
    assert.match(status, /^Seccomp:\s2$/m);
    const [namespace] = await run("readlink", "/input/proc/self/ns/user");
    assert.equal(namespace !== readlinkSync("/proc/self/ns/user"), hasOwnUsers);
    // All ids are what they are outside, so that owners come out right.
    const ids = readFileSync("/proc/self/uid_map", "utf8").trim().replace(/ +/g, " ");
    assert.deepEqual((await run("cat", "/input/proc/self/uid_map")).join("\n").trim().replace(/ +/g, " "), ids);
  });
}

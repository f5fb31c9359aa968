/**
 * How the end of a VM is explained, for every kind of evidence.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { explainExit, lastMessage, type ExitEvidence, shutdownReasonIn } from "./exit-reason.ts";

const nothing: ExitEvidence = {
  excess: null,
  isEndedByUs: false,
  isOutOfMemory: false,
  fencedAt: null,
  shutdownReason: null,
  exit: null,
  log: "",
  console: "",
};

const cases: readonly (readonly [string, Partial<ExitEvidence>, string, RegExp])[] = [
  [
    "a VMM that printed without end",
    { isEndedByUs: true, excess: { cause: "output", bytes: 2_000_000 } },
    "killed",
    /printed without end/,
  ],
  ["a guest that powers off", { shutdownReason: "guest-shutdown" }, "poweroff", /powered off/],
  [
    "a guest that powers off while it is being ended",
    { shutdownReason: "guest-shutdown", isEndedByUs: true },
    "poweroff",
    /powered off/,
  ],
  [
    "a guest whose kernel panics",
    { shutdownReason: "guest-reset", console: "[ 1.0] Kernel panic - not syncing: no init\n[ 1.1] ---[ end\n" },
    "crashed",
    /Kernel panic - not syncing: no init/,
  ],
  ["a guest that resets itself in silence", { shutdownReason: "guest-reset" }, "crashed", /reset itself/],
  ["a VMM ended by us", { isEndedByUs: true, exit: { code: null, signal: "SIGKILL" } }, "killed", /node agent/],
  ["a VMM ended by somebody", { exit: { code: null, signal: "SIGKILL" } }, "killed", /SIGKILL/],
  [
    "a VMM that the kernel killed because memory ran out",
    { exit: { code: null, signal: "SIGKILL" }, isOutOfMemory: true },
    "killed",
    /^out of memory on the host side: .*start it again/,
  ],
  ["a VMM that breaks its sandbox", { exit: { code: null, signal: "SIGSYS" } }, "crashed", /SIGSYS/],
  ["a VMM that is shut down by request", { shutdownReason: "host-qmp-quit" }, "killed", /host-qmp-quit/],
  [
    "a VMM that cannot start",
    { exit: { code: 1, signal: null }, log: "qemu-system-x86_64: -m 9: no memory\n" },
    "crashed",
    /^-m 9: no memory$/,
  ],
  ["a VMM that fails without a word", { exit: { code: 3, signal: null } }, "crashed", /code 3/],
  ["a VMM that was not our child", {}, "killed", /process has ended/],
];

for (const [what, evidence, kind, detail] of cases) {
  test(`${what} is ${kind}`, () => {
    const exit = explainExit({ ...nothing, ...evidence });
    assert.equal(exit.kind, kind);
    assert.match(exit.detail, detail);
  });
}

test("a VMM that an agent ended after its fence had ended when the fence did", () => {
  const ended = { ...nothing, isEndedByUs: true, exit: { code: null, signal: "SIGKILL" } };
  assert.equal(explainExit({ ...ended, fencedAt: 5 }).at, 5);
  assert.equal(explainExit(ended).at, undefined);
});

test("a VMM's error is shown without the option it quotes and without the hint after it", () => {
  const log =
    'qemu-system-x86_64: -blockdev {"driver":"raw"}: Failed to get "write" lock\nIs another process using it?\n';
  assert.equal(lastMessage(log), 'Failed to get "write" lock');
});

test("a warning of the VMM is not a reason of its end", () => {
  const warning =
    "qemu-system-x86_64: -accel kvm: warning: Number of hotpluggable cpus requested (3) exceeds the recommended cpus supported by KVM (2)\n";
  const killed = { ...nothing, exit: { code: null, signal: "SIGKILL" }, log: warning };
  assert.equal(explainExit(killed).detail, "the VMM was killed by SIGKILL");
  assert.equal(lastMessage(`qemu-system-x86_64: warning: a\nqemu-system-x86_64: no memory\n${warning}`), "no memory");
});

test("what a guest prints is shown without control characters and shortened", () => {
  assert.equal(lastMessage("\u001b[31mred\u0007\u001b[0m\n\n"), "red");
  assert.equal(lastMessage("x".repeat(1000))?.length, 301);
  assert.equal(lastMessage("\r\n \n"), null);
  assert.equal(lastMessage(`${"x".repeat(299)}😀`), `${"x".repeat(299)}\ufffd…`);
  assert.equal(lastMessage("😀".slice(1)), "\ufffd");
});

test("an end that no agent observed is recognized by the kernel's last line", () => {
  assert.equal(shutdownReasonIn("…\n[    9.1] reboot: Power down\n"), "guest-shutdown");
  assert.equal(shutdownReasonIn("[    9.1] reboot: Restarting system\n"), "guest-reset");
});

/**
 * The memory of a real machine that moves while it runs: what was written before the move, and what a command
 * writes all the time.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { startFlotilla } from "../support/flotilla.ts";
import { moveLive, restoredMachine } from "../support/real-moves.ts";
import { skipReason } from "../vm/vm-fixture.ts";

const MOVES = 4;
const PIECES = 6;

const FILL =
  `cd /dev/shm && for i in $(seq ${PIECES}); do head -c 4000000 /dev/urandom >kept$i; sha256sum kept$i >>sums; done; ` +
  "cat /proc/sys/kernel/random/boot_id";
/** Each round replaces a file and frees the memory of the one before. */
const WRITER =
  "(n=0; while :; do n=$((n+1)); head -c 1000000 /dev/urandom >/dev/shm/next; sha256sum </dev/shm/next >/dev/shm/sum; " +
  "mv /dev/shm/next /dev/shm/latest; echo $n >/dev/shm/rounds; sleep 0.05; done) >/dev/null 2>&1 &";
const CHECK =
  "cd /dev/shm && sha256sum -c sums | grep -c OK; cat rounds; cat /proc/sys/kernel/random/boot_id; " +
  'for i in $(seq 20); do sum=$(sha256sum <latest); [ "$sum" = "$(cat sum)" ] && echo same && break; done';

test("a machine that moves while it runs keeps all of its memory", { skip: skipReason }, async () => {
  await using flotilla = await startFlotilla({ nodes: 2, driver: "qemu" });
  const id = await restoredMachine(flotilla);
  const boot = await flotilla.exec(id, FILL);
  await flotilla.exec(id, WRITER);
  let rounds = 0;
  for (let moves = 0; moves < MOVES; moves += 1) {
    await moveLive(flotilla, id);
    const [kept, written, sameBoot, latest] = (await flotilla.exec(id, CHECK)).trim().split("\n");
    assert.deepEqual([kept, `${sameBoot}\n`, latest], [`${PIECES}`, boot, "same"]);
    assert.ok(Number(written) > rounds, `${written} rounds of its writer`);
    rounds = Number(written);
  }
  await flotilla.remove(id);
});

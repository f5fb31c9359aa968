/**
 * Takes a restored guest the way of a machine's start and first command, so that its processor has translated that code
 * before a machine waits for it.
 *
 * A guest that has mounted the disk of a machine to be is configured as another machine once more, and runs shells. One
 * without a disk is lent a scratch disk and mounts it in namespaces of a child that ends (guest/warm.c).
 *
 * Always: nothing of it is left for the machine: a scratch disk is gone, and the placeholder is back in its place.
 */
import { rm } from "node:fs/promises";
import type { Clock } from "@flotilla/base/clock";
import type { Guest, GuestExecRequest } from "../../../guest/guest.ts";
import type { RestoredGuest } from "../tuning.ts";
import { AGENT_COMMAND, unnamedConfiguration } from "../unnamed.ts";

/** What most first commands begin with. */
const SHELL: GuestExecRequest = { ...AGENT_COMMAND, argv: ["sh", "-lc", "true"], cwd: null };
/** Commands through the channel, as a machine's will come. */
const COMMANDS = 4;

export async function warmUp(restored: RestoredGuest, clock: Clock): Promise<void> {
  const { guest, mounted, makeScratchDisk } = restored;
  if (mounted !== null) {
    // The machine that takes it will give it another name.
    await guest.configure(unnamedConfiguration(mounted, { now: clock.now(), digit: "1" }));
    await run(guest, SHELL);
  } else if (makeScratchDisk !== null) {
    const disk = await makeScratchDisk();
    await guest.warmUp(unnamedConfiguration(await restored.attach(disk), { now: clock.now(), digit: "0" }));
    await run(guest, AGENT_COMMAND);
    await restored.detach();
    await rm(disk.path);
  }
}

/** The command may be missing in the guest: then it has warmed up what it could. */
async function run(guest: Guest, request: GuestExecRequest): Promise<void> {
  for (let count = 0; count < COMMANDS; count += 1) {
    const exec = guest.exec(request);
    exec.stdout.resume();
    exec.stderr.resume();
    await Promise.all([exec.exit, exec.pid.catch(() => {})]);
  }
}

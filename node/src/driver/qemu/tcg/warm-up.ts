/**
 * Runs in a restored guest what a machine's start and first command run, so that this code is translated
 * before a machine waits for it.
 *
 * A guest that has mounted a future machine's disk is configured once more as another machine, and runs
 * shells. A guest without a disk gets a temporary one, which it mounts in the namespaces of a child that ends
 * (guest/warm.c).
 *
 * Always: nothing of it remains for the machine: the temporary disk is removed, and the placeholder is
 * attached again.
 */
import { rm } from "node:fs/promises";
import type { Clock } from "@flotilla/base/clock";
import type { Guest, GuestExecRequest } from "../../../guest/guest.ts";
import type { RestoredGuest } from "../tuning.ts";
import { AGENT_COMMAND, placeholderConfiguration } from "../placeholder-machine.ts";

/** How most first commands start. */
const SHELL: GuestExecRequest = { ...AGENT_COMMAND, argv: ["sh", "-lc", "true"], cwd: null };
/**
 * Commands run through the channel, like a machine's. A third one runs hardly any code that is not
 * translated.
 */
const COMMANDS = 2;

export async function warmUp(restored: RestoredGuest, clock: Clock): Promise<void> {
  const { guest, mounted, makeScratchDisk } = restored;
  if (mounted !== null) {
    // Another name, because the machine that takes the VM will change it too.
    await guest.configure(placeholderConfiguration(mounted, { now: clock.now(), digit: "1" }));
    await run(guest, SHELL);
  } else if (makeScratchDisk !== null) {
    const disk = await makeScratchDisk();
    await guest.warmUp(placeholderConfiguration(await restored.attach(disk), { now: clock.now(), digit: "0" }));
    await run(guest, AGENT_COMMAND);
    await restored.detach();
    await rm(disk.path);
  }
}

/** The command may be missing in the guest; running the agent's lookup is still useful. */
async function run(guest: Guest, request: GuestExecRequest): Promise<void> {
  for (let count = 0; count < COMMANDS; count += 1) {
    const exec = guest.exec(request);
    exec.stdout.resume();
    exec.stderr.resume();
    await Promise.all([exec.exit, exec.pid.catch(() => {})]);
  }
}

/**
 * Tells a VM's guest which machine it is.
 *
 * Always: it ends within CONFIGURE_DEADLINE_MS, and when the guest dies meanwhile, the reason says how the VM ended
 * instead of that its channel broke.
 */
import { deadlineSignal, orAborted } from "@flotilla/base/abort";
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { Vm } from "../driver/driver.ts";
import type { GuestConfiguration } from "../guest/guest.ts";

const CONFIGURE_DEADLINE_MS = 60_000;
/** A VMM's end and its channel's end are seen apart; this is how long the one waits to be explained by the other. */
export const EXIT_GRACE_MS = 1_000;

/** Rejects with a text for the machine's owner, or with the signal's reason. */
export async function configureVm(
  vm: Vm,
  configuration: GuestConfiguration,
  clock: Clock,
  signal: AbortSignal,
): Promise<void> {
  const deadline = deadlineSignal(clock, CONFIGURE_DEADLINE_MS, signal);
  try {
    await orAborted(vm.guest.configure(configuration), deadline.signal);
  } catch (error) {
    signal.throwIfAborted();
    const exit = await Promise.race([vm.exited, clock.sleep(EXIT_GRACE_MS, deadline.signal)]);
    throw new Error(
      exit === undefined
        ? `the guest could not be set up: ${messageOf(error)}`
        : `the guest ended while it was set up (${exit.kind}): ${exit.detail}`,
    );
  } finally {
    deadline.dispose();
  }
}

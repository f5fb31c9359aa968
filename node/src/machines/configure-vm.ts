/**
 * Sends a VM's guest the identity of its machine.
 *
 * Always: it ends within CONFIGURE_DEADLINE_MS. If the guest dies, the error says how the VM ended, not that
 * its channel broke.
 */
import { deadlineSignal, orAborted } from "@flotilla/base/abort";
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { Vm } from "../driver/driver.ts";
import type { GuestConfiguration } from "../guest/guest.ts";

const CONFIGURE_DEADLINE_MS = 60_000;
/**
 * The ends of a VMM and of its channel arrive separately: how long to wait for the VMM's after the channel's.
 */
export const EXIT_GRACE_MS = 1_000;

/** Rejects with an Error for the machine's owner, or with the signal's reason. */
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
        ? `the guest could not be configured: ${messageOf(error)}`
        : `the guest ended while it was configured (${exit.kind}): ${exit.detail}`,
    );
  } finally {
    deadline.dispose();
  }
}

/**
 * Makes a guest that has answered this machine: sends its identity, starts its workload and probes its ports.
 *
 * A crash before the end leaves a boot without `runningSince` in the journal: its guest is configured again.
 */
import { randomBytes } from "node:crypto";
import type { GuestAddressing, Vm } from "../../driver/driver.ts";
import type { GuestConfiguration } from "../../guest/guest.ts";
import { guestConfiguration } from "../configuration.ts";
import { configureVm } from "../configure-vm.ts";
import { afterResume } from "../hook.ts";
import type { JournaledBoot } from "../journal.ts";
import type { Machine } from "../machine.ts";
import { bootDirectoryName } from "../paths.ts";
import { workloadCommand } from "../workload/workload.ts";
import { rootBytes } from "./boot.ts";

export async function configure(machine: Machine, signal: AbortSignal): Promise<void> {
  const { clock } = machine.deps;
  const { vm } = machine.held;
  const { boot } = machine.journal;
  if (vm === null || boot === null) throw new Error("the VM ended before it was configured");
  const startedAt = clock.monotonic();
  let workload: readonly string[] | null;
  try {
    workload = await configureGuest(machine, vm, signal);
  } catch (error) {
    if (machine.templateRetry.isFor(vm)) return;
    throw error;
  }
  if (machine.templateRetry.end()) forgetTemplate(machine);
  machine.timings.note({ configureMs: clock.monotonic() - startedAt, totalMs: machine.timings.totalMs });
  const latest = machine.journal.boot ?? boot;
  markRunning(machine, vm, { ...latest, workload });
  await afterResume(machine, vm, signal);
}

/** Sends the guest its identity, clock and network. Resolves with the machine's workload. */
export async function configureGuest(machine: Machine, vm: Vm, signal: AbortSignal): Promise<readonly string[] | null> {
  const configuration = await configurationOf(machine, vm.network);
  await configureVm(vm, configuration, machine.deps.clock, signal);
  const image = (await machine.disk.image(machine.journal.imageDigest)).configuration;
  return workloadCommand(machine.requiredSpec(), image);
}

/** What makes a guest this machine now. */
export async function configurationOf(machine: Machine, network: GuestAddressing | null): Promise<GuestConfiguration> {
  const { driver, clock } = machine.deps;
  const image = (await machine.disk.image(machine.journal.imageDigest)).configuration;
  const bytes = await rootBytes(machine);
  return guestConfiguration({
    spec: machine.requiredSpec(),
    image,
    rootDevice: driver.facts.rootDevice,
    rootBytes: bytes,
    network,
    now: clock.now(),
    entropy: randomBytes(64),
  });
}

/** Discards a template that killed a guest, and the VMs prepared from it. In the background. */
function forgetTemplate(machine: Machine): void {
  const { driver, prepared, log } = machine.deps;
  Promise.all([driver.forgetTemplate(machine.requiredSpec()), prepared.discardWaiting()]).catch((error: unknown) =>
    log.error({ error }, "a template that killed a guest could not be removed"),
  );
}

/** The guest is configured. Does nothing when it has ended in the meantime. */
export function markRunning(machine: Machine, vm: Vm, boot: JournaledBoot): void {
  const { held, timings, workload, deps } = machine;
  if (held.vm !== vm || machine.journal.boot?.bootId !== boot.bootId) return;
  held.state = "configured";
  const { bootId } = boot;
  const { machineId } = machine.journal;
  const runningSince = deps.runs.open({ bootId, machineId, startedAt: boot.runningSince ?? deps.clock.now() });
  const ports = machine.requiredSpec().ports.map(({ port }) => port);
  // Without a port to probe, the machine is ready when the guest agent answers.
  const readySince = boot.readySince ?? (ports.length === 0 || vm.network === null ? runningSince : null);
  const { restarts = null } = machine.journal;
  void machine.update({
    boot: { ...boot, record: vm.record, runningSince, readySince, timings: timings.noted },
    restarts: restarts === null ? null : { ...restarts, isUnderWay: false },
  });
  if (readySince === null && vm.network !== null) held.readiness.begin(vm.network, ports, () => markReady(machine));
  if (!boot.workload) return;
  const isEnding = (): boolean => machine.journal.desired !== "running";
  workload
    .attach(vm.guest, { argv: boot.workload, boot: bootDirectoryName(boot.guestBootId ?? boot.bootId), isEnding })
    .catch((error: unknown) =>
      machine.log.error({ error }, "the machine's log could not be read; the output of its workload is not recorded"),
    );
}

/** A published port has accepted a connection. */
function markReady(machine: Machine): void {
  const { boot } = machine.journal;
  if (boot !== null) void machine.update({ boot: { ...boot, readySince: machine.deps.clock.now() } });
  machine.changed();
}

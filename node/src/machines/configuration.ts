/**
 * The configuration that makes a booted guest this machine: the image's config, overridden by the machine's.
 * Pure.
 *
 * Always: the machine's value overrides the image's. PATH is always set.
 */
import type { MachineSpec } from "@flotilla/contract/link/link";
import type { GuestConfiguration } from "../guest/guest.ts";
import type { ImageConfiguration } from "../images/images.ts";

const PATH_DEFAULT = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

export interface ConfigurationFacts {
  readonly spec: MachineSpec;
  readonly image: ImageConfiguration;
  readonly rootDevice: string | null;
  /** null: the guest has no interface. */
  readonly network: Pick<GuestConfiguration, "address" | "nameservers"> | null;
  /** Epoch milliseconds. */
  readonly now: number;
  readonly rootBytes: number;
  readonly entropy: Uint8Array;
}

export function guestConfiguration({
  spec,
  image,
  rootDevice,
  rootBytes,
  network,
  now,
  entropy,
}: ConfigurationFacts): GuestConfiguration {
  return {
    hostname: spec.hostname,
    // The id without its prefix is exactly the 32 hex digits that /etc/machine-id wants.
    machineId: spec.machineId.slice(-32),
    now,
    entropy,
    env: mergedEnvironment(image.env, spec.env),
    workdir: spec.workdir ?? (image.workdir || "/"),
    user: image.user,
    rootDevice,
    rootBytes: rootDevice === null ? null : rootBytes,
    nameservers: network?.nameservers ?? [],
    address: network?.address ?? null,
  };
}

/** `lines`: `NAME=value` of the image's config; lines without a name are left out. */
export function mergedEnvironment(
  lines: readonly string[],
  machine: Readonly<Record<string, string>>,
): Record<string, string> {
  const merged: Record<string, string> = { PATH: PATH_DEFAULT };
  for (const line of lines) {
    const at = line.indexOf("=");
    if (at > 0) merged[line.slice(0, at)] = line.slice(at + 1);
  }
  return Object.assign(merged, machine);
}

/**
 * The fields of a guest's configuration and of environments, as messages have them. Pure.
 */
import { FieldWriter } from "@flotilla/contract/guest/messages";
import type { GuestConfiguration } from "./guest.ts";

/** A list of `NAME=value`. */
export function environmentLines(env: Readonly<Record<string, string>>): string[] {
  return Object.entries(env).map(([name, value]) => `${name}=${value}`);
}

/** What `configure` and `warmUp` say. */
export function configurationFields(configuration: GuestConfiguration): FieldWriter {
  const fields = new FieldWriter()
    .text("hostname", configuration.hostname)
    .text("machineId", configuration.machineId)
    .u64("now", configuration.now)
    .bytes("entropy", configuration.entropy)
    .texts("environment", environmentLines(configuration.env))
    .text("workdir", configuration.workdir)
    .text("user", configuration.user)
    .texts("nameserver", configuration.nameservers);
  if (configuration.rootDevice !== null) fields.text("rootDevice", configuration.rootDevice);
  if (configuration.rootBytes !== null) fields.u64("rootBytes", configuration.rootBytes);
  if (configuration.address !== null) {
    fields.text("address", configuration.address.cidr).text("gateway", configuration.address.gateway);
  }
  if (configuration.isClone === true) fields.u32("isClone", 1);
  return fields;
}

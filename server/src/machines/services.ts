/**
 * The services for machines in addition to the server's: the cache of machines, their addresses and activity,
 * and the registry.
 *
 * Made once per server, by `openMachineServices`. `stop` writes the collected activity, and is called after
 * the server's services have stopped.
 */
import { PORTS_PER_MACHINE_DEFAULT } from "@flotilla/contract/limits";
import type { Registry } from "../registry/registry.ts";
import type { Services } from "../services.ts";
import { Activity } from "./activity.ts";
import { MachineAddresses } from "./addresses.ts";
import { MachineCache } from "./machine-cache.ts";

export interface MachineServices extends Services {
  readonly cache: MachineCache;
  readonly activity: Activity;
  readonly addresses: MachineAddresses;
  readonly registry: Registry;
  /** How many ports a machine may publish. */
  readonly portsPerMachine: number;
}

/** What it takes to send a machine's desired state to its node and to write the answer. */
export type ConvergeServices = Pick<MachineServices, "cache" | "context" | "link" | "secrets">;

export interface OpenMachineServices extends MachineServices {
  start(): void;
  stop(): Promise<void>;
}

export interface MachineServiceOptions {
  readonly portsPerMachine?: number | undefined;
  readonly machinesUrl?: string | null;
  readonly publicUrl?: string | null;
}

export function openMachineServices(
  services: Services,
  registry: Registry,
  options: MachineServiceOptions,
): OpenMachineServices {
  const { context } = services;
  const cache = new MachineCache(context);
  const activity = new Activity(context, (id, at) => cache.touched(id, at));
  return {
    ...services,
    cache,
    activity,
    registry,
    addresses: new MachineAddresses({ machinesUrl: options.machinesUrl ?? null, publicUrl: options.publicUrl ?? null }),
    portsPerMachine: options.portsPerMachine ?? PORTS_PER_MACHINE_DEFAULT,
    start: () => activity.start(),
    async stop() {
      await activity.stop();
      cache.close();
    },
  };
}

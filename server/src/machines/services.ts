/**
 * What the verbs of the machines family work with: caches, the link to nodes, and work that no request waits for.
 *
 * Made once per server, by `openMachineServices`; `stop` lets the work under way end and writes what was gathered.
 */
import { join } from "node:path";
import { NODE_WAIT_MS, PORTS_PER_MACHINE_DEFAULT } from "@flotilla/contract/limits";
import { RegistryList } from "@flotilla/contract/registries";
import type { Context } from "../context.ts";
import { NodeAway, NodeLink } from "../link/node-link.ts";
import { NodeDirectory } from "../placement/directory.ts";
import { Activity } from "./activity.ts";
import { CeilingsCache } from "../usage/ceilings-cache.ts";
import { MachineAddresses } from "./ingress/addresses.ts";
import { MachineCache } from "./machine-cache.ts";
import type { Ceilings } from "../usage/quota.ts";
import { MachineSecrets } from "./secrets.ts";

export interface MachineServices {
  readonly context: Context;
  readonly link: NodeLink;
  readonly cache: MachineCache;
  readonly nodes: NodeDirectory;
  readonly activity: Activity;
  readonly addresses: MachineAddresses;
  readonly registries: RegistryList;
  readonly secrets: MachineSecrets;
  /** The address that refusals over a ceiling name; null: none. */
  readonly plansUrl: string | null;
  /** How many ports a machine may publish. */
  readonly portsPerMachine: number;
  /** How long one question to a node waits for it, and how long a stop is waited for before the caller is told that it goes on. */
  readonly nodeWaitMs: number;
  readonly ceilingsOf: (tenantId: string) => Promise<Ceilings>;
  /** Lets work go on that no request waits for; it is finished before the server ends. Its failure is logged. */
  readonly inBackground: (what: string, work: () => Promise<unknown>) => void;
}

/** How long the end of the server waits for calls that no request waits for. */
const STOP_WAIT_MS = 2_000;

export interface OpenMachineServices extends MachineServices {
  start(): void;
  stop(): Promise<void>;
}

export interface MachineServiceOptions {
  readonly dataDirectory: string;
  readonly plansUrl: string | null;
  readonly portsPerMachine?: number | undefined;
  readonly nodeWaitMs?: number | undefined;
  readonly appsUrl?: string | null;
  readonly publicUrl?: string | null;
  readonly allowedRegistries?: readonly string[] | null;
  readonly registryMirrors?: ReadonlyMap<string, string>;
  readonly insecureRegistries?: readonly string[];
}

export function openMachineServices(context: Context, options: MachineServiceOptions): OpenMachineServices {
  const link = new NodeLink(context.log, context.clock);
  const cache = new MachineCache(context);
  const ceilings = new CeilingsCache(context.db);
  const activity = new Activity(context, (id, at) => cache.touched(id, at));
  const addresses = new MachineAddresses({ appsUrl: options.appsUrl ?? null, publicUrl: options.publicUrl ?? null });
  const nodes = new NodeDirectory(context);
  const underWay = new Set<Promise<void>>();
  return {
    context,
    link,
    cache,
    activity,
    addresses,
    nodes,
    registries: new RegistryList({
      allowed: options.allowedRegistries ?? null,
      mirrors: options.registryMirrors ?? new Map(),
      insecure: options.insecureRegistries ?? [],
    }),
    secrets: new MachineSecrets(join(options.dataDirectory, "secrets.key"), context.randomBytes),
    plansUrl: options.plansUrl,
    portsPerMachine: options.portsPerMachine ?? PORTS_PER_MACHINE_DEFAULT,
    nodeWaitMs: options.nodeWaitMs ?? NODE_WAIT_MS,
    ceilingsOf: (tenantId) => ceilings.of(tenantId),
    inBackground(what, work) {
      const done = work().then(
        () => undefined,
        (error: unknown) => {
          // The machine reconciler goes on from what was written.
          if (error instanceof NodeAway) context.log.info({ reason: error.reason }, `${what} waits for its node`);
          else context.log.warn({ error }, `${what} could not be finished`);
        },
      );
      underWay.add(done);
      void done.finally(() => underWay.delete(done));
    },
    start: () => activity.start(),
    async stop() {
      const late = new AbortController();
      await Promise.race([Promise.all(underWay), context.clock.sleep(STOP_WAIT_MS, late.signal)]);
      late.abort();
      // Calls that still wait for a node end with their connections; the machine reconciler of another server goes on.
      await link.close();
      await Promise.all(underWay);
      await activity.stop();
      nodes.close();
      cache.close();
      ceilings.close();
    },
  };
}

/**
 * What every family uses besides the context: the link to nodes, placement, ceilings, allowed registries, and
 * background work.
 *
 * Made once per server, by `openServices`. A family that needs more extends it (machines/services.ts), so
 * that this file imports no family that imports it. Functions declare the part they use: `Pick<Services,
 * "link">`.
 */
import { join } from "node:path";
import { NODE_WAIT_MS } from "@flotilla/contract/limits";
import { RegistryList } from "@flotilla/contract/registries";
import type { Context } from "./context.ts";
import { FleetConnections } from "./link/fleet-connections.ts";
import { NodeLink } from "./link/node-link.ts";
import { ParkedConnections } from "./link/parked.ts";
import type { Fleet } from "./link/reach.ts";
import { NodeUnreachable } from "./link/refusals.ts";
import { FleetTrust } from "./link/trust.ts";
import { NodeDirectory } from "./placement/directory.ts";
import { Secrets } from "./secrets.ts";
import { CeilingsCache } from "./usage/ceilings-cache.ts";
import type { Ceilings } from "./usage/quota.ts";

export interface Services {
  readonly context: Context;
  readonly link: NodeLink;
  /** What is needed for nodes on other hosts. */
  readonly fleet: Fleet;
  readonly secrets: Secrets;
  readonly nodes: NodeDirectory;
  readonly registries: RegistryList;
  /** The address that is named by refusals over a ceiling; null: none. */
  readonly plansUrl: string | null;
  /**
   * How long one request to a node waits, and how long a stop is awaited before the answer says that it
   * continues.
   */
  readonly nodeWaitMs: number;
  readonly ceilingsOf: (tenantId: string) => Promise<Ceilings>;
  /** Runs work that no request waits for; it is finished before the server ends. Its failure is logged. */
  readonly inBackground: (what: string, work: () => Promise<unknown>) => void;
}

export interface OpenServices extends Services {
  /**
   * Waits for the running work, at most STOP_WAIT_MS for work that waits for a node, then closes everything.
   */
  stop(): Promise<void>;
}

export interface ServiceOptions {
  readonly dataDirectory: string;
  readonly plansUrl: string | null;
  readonly nodeWaitMs?: number | undefined;
  readonly cpuOvercommit?: number | null;
  readonly memoryOvercommit?: number | null;
  readonly allowedRegistries?: readonly string[] | null;
  readonly registryMirrors?: ReadonlyMap<string, string>;
  readonly insecureRegistries?: readonly string[];
}

/** How long the end of the server waits for background work. */
const STOP_WAIT_MS = 2_000;

export function openServices(context: Context, options: ServiceOptions): OpenServices {
  const secrets = new Secrets(join(options.dataDirectory, "secrets.key"), context.randomBytes);
  const trust = new FleetTrust(context, secrets);
  const { clock } = context;
  const fleet = { trust, clock, parked: new ParkedConnections(clock), connections: new FleetConnections(context) };
  const link = new NodeLink(context.log, context.clock, fleet);
  const ceilings = new CeilingsCache(context.db);
  const nodes = new NodeDirectory(context, {
    cpus: options.cpuOvercommit ?? null,
    memory: options.memoryOvercommit ?? null,
  });
  const underWay = new Set<Promise<void>>();
  return {
    context,
    link,
    fleet,
    secrets,
    nodes,
    registries: new RegistryList({
      allowed: options.allowedRegistries ?? null,
      mirrors: options.registryMirrors ?? new Map(),
      insecure: options.insecureRegistries ?? [],
    }),
    plansUrl: options.plansUrl,
    nodeWaitMs: options.nodeWaitMs ?? NODE_WAIT_MS,
    ceilingsOf: (tenantId) => ceilings.of(tenantId),
    inBackground(what, work) {
      const done = work().then(
        () => undefined,
        (error: unknown) => {
          // The machine reconciler continues from the written state.
          if (error instanceof NodeUnreachable)
            context.log.info({ reason: error.reason }, `${what} waits for its node`);
          else context.log.warn({ error }, `${what} could not be finished`);
        },
      );
      underWay.add(done);
      void done.finally(() => underWay.delete(done));
    },
    async stop() {
      const late = new AbortController();
      await Promise.race([Promise.all(underWay), context.clock.sleep(STOP_WAIT_MS, late.signal)]);
      late.abort();
      // Calls that still wait for a node end with their connections; the machine reconciler of another server
      // continues.
      await link.close();
      fleet.parked.close();
      fleet.connections.close();
      trust.close();
      await Promise.all(underWay);
      nodes.close();
      ceilings.close();
    },
  };
}

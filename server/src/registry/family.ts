/**
 * The registry of packages: its loops, collections and metrics. Requests below `/v2/` have their own pipeline
 * (serve.ts).
 */
import { instantOf } from "../db/instant.ts";
import type { Context } from "../context.ts";
import type { Family, Measure } from "../family.ts";
import { collectionReconciler, collectionWorker } from "./collect.ts";
import { purgeRegistryLeases } from "./lease-store.ts";
import type { Registry } from "./registry.ts";
import { registryHandlers } from "./routes.ts";
import { readFigures } from "./store.ts";
import { sweepReconciler } from "./sweep-loop.ts";

export function registryFamily(parts: { readonly context: Context; readonly registry: Registry }) {
  const { registry } = parts;
  return {
    name: "registry",
    handlers: registryHandlers(parts),
    workers: registry.isCollected ? [collectionWorker(parts)] : [],
    loops: [sweepReconciler(parts), collectionReconciler(parts)],
    purges: { registryLeases: purgeRegistryLeases },
    measures: measuresOf(parts),
    stop: () => registry.stop(),
  } satisfies Family;
}

function measuresOf({ context, registry }: { readonly context: Context; readonly registry: Registry }): Measure[] {
  const figure = (
    name: string,
    help: string,
    read: (of: Awaited<ReturnType<typeof readFigures>>) => number,
  ): Measure => ({
    ...{ kind: "gauge", name, help, labels: [] },
    read: async () => [[{}, read(await readFigures(context.db, instantOf(context.clock.now())))]],
  });
  return [
    {
      ...{ kind: "gauge", name: "flotilla_registry_available", labels: [] },
      help: "1 while packages can be stored and read",
      read: () => [[{}, registry.isAvailable() ? 1 : 0]],
    },
    figure(
      "flotilla_registry_bytes",
      "bytes of blobs and manifests, each counted once for a repository",
      (of) => of.bytes,
    ),
    figure("flotilla_registry_manifests", "manifests that can be read", (of) => of.manifests),
    figure("flotilla_registry_uploads", "uploads that have begun and not ended", (of) => of.uploads),
    figure("flotilla_registry_leases", "pushes and exports that keep what they need", (of) => of.leases),
  ];
}

/**
 * What pages read, each under its key of the cache; live.ts reads it again by these keys.
 */
import type { MachineInfo } from "@flotilla/sdk";
import { queryOptions } from "@tanstack/react-query";
import { api, queries } from "./api.ts";

const PAGE = 1_000;

type PageOf<Item> = (options: {
  query: { limit: number; cursor?: string };
  onHeaders: (headers: Headers) => void;
  signal: AbortSignal;
}) => Promise<readonly Item[]>;

/** All items of a list, page by page; `onPart` gets what has come so far. */
async function readAll<Item>(
  read: PageOf<Item>,
  signal: AbortSignal,
  onPart?: (items: readonly Item[]) => void,
): Promise<readonly Item[]> {
  const all: Item[] = [];
  let cursor: string | null = null;
  do {
    const query: { limit: number; cursor?: string } = cursor === null ? { limit: PAGE } : { limit: PAGE, cursor };
    let next: string | null = null;
    all.push(...(await read({ query, signal, onHeaders: (headers) => (next = nextCursor(headers)) })));
    cursor = next;
    if (cursor !== null) onPart?.([...all]);
  } while (cursor !== null);
  return all;
}

/** The cursor of the next page, from the header `link`; null: there is none. */
export function nextCursor(headers: Headers): string | null {
  const path = /<([^>]+)>;\s*rel="?next"?/.exec(headers.get("link") ?? "")?.[1];
  return path === undefined ? null : new URL(path, location.origin).searchParams.get("cursor");
}

export const machinesQuery = queryOptions({
  queryKey: ["machines"],
  // Comparing 10,000 machines with those of before takes longer than a frame.
  structuralSharing: false,
  // Without its signal: a read that ended with the page that began it would leave a part of the list for all.
  queryFn: () => {
    const { signal } = new AbortController();
    const isFirst = queries.getQueryData(["machines"]) === undefined;
    const show = (items: readonly MachineInfo[]): void => void queries.setQueryData(["machines"], items);
    return readAll<MachineInfo>((options) => api.listMachines(options), signal, isFirst ? show : undefined);
  },
});

/** Names by id of the machines that have one. */
export const machineNamesQuery = {
  ...machinesQuery,
  select: (machines: readonly MachineInfo[]) =>
    new Map(machines.flatMap(({ id, name }) => (name === null ? [] : [[id, name] as const]))),
};

export const machineQuery = (id: string) =>
  queryOptions<MachineInfo | null>({
    queryKey: ["machine", id],
    queryFn: ({ signal }) => api.getMachine(id, { signal }),
  });

export const machineEventsQuery = (id: string) =>
  queryOptions({
    queryKey: ["machine-parts", id, "events"],
    queryFn: async ({ signal }) =>
      (await readAll((options) => api.listMachineEvents(id, options), signal)).toReversed(),
  });

export const machineUsageQuery = (id: string) =>
  queryOptions({
    queryKey: ["machine-parts", id, "usage"],
    queryFn: ({ signal }) => api.getMachineUsage(id, { signal }),
  });

export const lineageQuery = (id: string) =>
  queryOptions({
    queryKey: ["machine-parts", id, "lineage"],
    queryFn: ({ signal }) => api.getLineage(id, { signal }),
    retry: false,
  });

export const accountQuery = queryOptions({
  queryKey: ["account"],
  queryFn: ({ signal }) => api.getAccount({ signal }),
});

export const nodesQuery = queryOptions({
  queryKey: ["nodes"],
  queryFn: ({ signal }) => readAll((options) => api.listNodes(options), signal),
});

export const findingsQuery = queryOptions({
  queryKey: ["nodes", "findings"],
  queryFn: ({ signal }) => api.listFindings({ signal }),
});

export const serversQuery = queryOptions({
  queryKey: ["nodes", "servers"],
  queryFn: ({ signal }) => api.listServers({ signal }),
});

export const appsQuery = queryOptions({ queryKey: ["apps"], queryFn: ({ signal }) => api.listApps({ signal }) });

export const appQuery = (name: string) =>
  queryOptions({ queryKey: ["apps", name], queryFn: ({ signal }) => api.getApp(name, { signal }) });

export const appExplanationQuery = (name: string) =>
  queryOptions({ queryKey: ["apps", name, "why"], queryFn: ({ signal }) => api.explainApp(name, { signal }) });

export const releasesQuery = (name: string) =>
  queryOptions({ queryKey: ["apps", name, "releases"], queryFn: ({ signal }) => api.listReleases(name, { signal }) });

export const imagesQuery = queryOptions({
  queryKey: ["images"],
  queryFn: ({ signal }) => readAll((options) => api.listImages(options), signal),
});

export const packagesQuery = queryOptions({
  queryKey: ["packages"],
  queryFn: ({ signal }) => readAll((options) => api.listPackages(options), signal),
});

export const retentionQuery = queryOptions({
  queryKey: ["packages", "retention"],
  queryFn: ({ signal }) => api.listPackageRetention({ signal }),
});

export const operationsQuery = queryOptions({
  queryKey: ["operations"],
  queryFn: ({ signal }) => api.listOperations({ query: { limit: 200 }, signal }),
});

export const keysQuery = queryOptions({
  queryKey: ["keys"],
  queryFn: ({ signal }) => readAll((options) => api.listApiKeys(options), signal),
});

export const webhooksQuery = queryOptions({
  queryKey: ["webhooks"],
  queryFn: ({ signal }) => readAll((options) => api.listWebhooks(options), signal),
});

export const deliveriesQuery = (id: string) =>
  queryOptions({
    queryKey: ["webhooks", id, "deliveries"],
    queryFn: ({ signal }) => api.listWebhookDeliveries(id, { query: { limit: 200 }, signal }),
  });

export const tenantsQuery = queryOptions({
  queryKey: ["tenants"],
  queryFn: ({ signal }) => readAll((options) => api.listTenants(options), signal),
});

export const plansQuery = queryOptions({
  queryKey: ["plans"],
  queryFn: ({ signal }) => readAll((options) => api.listPlans(options), signal),
});

export const invoicesQuery = queryOptions({
  queryKey: ["invoices"],
  queryFn: ({ signal }) => readAll((options) => api.listInvoices(options), signal),
});

export const invoiceQuery = (id: string) =>
  queryOptions({ queryKey: ["invoices", id], queryFn: ({ signal }) => api.getInvoice(id, { signal }) });

export const poolsQuery = queryOptions({
  queryKey: ["pools"],
  queryFn: ({ signal }) => readAll((options) => api.listPools(options), signal),
});

export const checkpointsQuery = (id: string) =>
  queryOptions({
    queryKey: ["machine-parts", id, "checkpoints"],
    queryFn: ({ signal }) => api.listMachineCheckpoints(id, { signal }),
    retry: false,
  });

export const healthQuery = queryOptions({ queryKey: ["health"], queryFn: ({ signal }) => api.getHealth({ signal }) });

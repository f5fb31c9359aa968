/**
 * The handlers of machines: create, list, get, update, delete, start, stop, events, usage. Each one unpacks,
 * calls a verb and wraps what it gets.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { MachineUsageResponse } from "@flotilla/contract/machines";
import type { Static } from "@flotilla/contract/schema";
import type { Caller } from "../auth/caller.ts";
import type { Context } from "../context.ts";
import { listNewest, listTimeline } from "../events/store.ts";
import { eventInfo } from "../events/view.ts";
import type { HandlersOf } from "../api/handler.ts";
import { createMachine } from "./create.ts";
import { parsePeriod } from "../api/period.ts";
import { page, parseLabels, parsePosition, parseSequence, positionOf } from "../api/paging.ts";
import { deleteMachine } from "./remove.ts";
import { asReached } from "./reached.ts";
import type { MachineRecord } from "./record.ts";
import type { MachineServices } from "./services.ts";
import { machineNotFound } from "../auth/not-found.ts";
import { startMachine } from "./start.ts";
import { stopMachine } from "./stop.ts";
import { findAnyMachine } from "./store.ts";
import { makeBranchable, updateMachine } from "./update.ts";
import { readBillingTime } from "../usage/store.ts";
import { machineUsage, monthUpTo } from "../usage/usage.ts";
import { readMachineUsage } from "../usage/intervals-store.ts";
import { machineInfo, shownMachine, shownMachines } from "./view.ts";

type MachineHandlers = HandlersOf<
  | "listMachines"
  | "createMachine"
  | "getMachine"
  | "updateMachine"
  | "deleteMachine"
  | "startMachine"
  | "stopMachine"
  | "listMachineEvents"
  | "getMachineUsage"
  | "createSnapshot"
  | "listSnapshots"
>;

export function machineHandlers(services: MachineServices): MachineHandlers {
  const { activity, addresses, cache, context } = services;
  return {
    async createMachine(request) {
      const { caller, body } = request;
      const machine = await createMachine(services, { ...caller, id: request.newId("machine"), request: body });
      return { status: 201, body: machineInfo(machine, addresses) };
    },
    async listMachines({ caller, query }) {
      const labels = parseLabels(query.label ?? []);
      const after = parsePosition(query.cursor, "machine");
      const limit = query.limit ?? null;
      const { machines, isCut } = await cache.list({
        tenantId: caller.tenantId,
        labels,
        after,
        limit: limit === null ? null : limit + 1,
      });
      if (isCut && limit === null)
        throw new Refusal(
          "invalid_body",
          "the machines are too many for one answer, with their environment; list them in pages, with limit",
        );
      const { items, headers } = page(machines, limit, "/v1/machines", {
        ...(query.label === undefined ? {} : { label: query.label }),
        cursorOf: positionOf,
        isCut,
      });
      const reached = items.map((machine) => asReached(services, machine));
      return { status: 200, headers, ...shownMachines(reached, addresses) };
    },
    getMachine({ caller, params }) {
      const name = { tenantId: caller.tenantId, id: params.id };
      const show = (machine: MachineRecord | undefined) =>
        shown(machine && asReached(services, machine), params.id, addresses);
      const known = cache.current(name);
      return known === undefined ? cache.read(name).then(show) : show(known);
    },
    async updateMachine({ caller: { tenantId }, params: { id }, body }) {
      const machine = await updateMachine(services, { tenantId, id, request: body });
      return { status: 200, body: machineInfo(machine, addresses) };
    },
    async deleteMachine({ caller, params, query }) {
      // Its row may be gone soon after the delete.
      const counting = activity.written(params.id);
      if (counting !== null) await counting;
      const machine = await deleteMachine(services, { tenantId: caller.tenantId, id: params.id });
      if (query.includeUsage !== true) return { status: 204 };
      return { status: 200, body: await usageOf(context, machine) };
    },
    async startMachine({ caller: { tenantId, keyId }, params, query, signal }) {
      // The answer waits for the commit of its row in the audit log (api/audit.ts).
      const how = { isAutomatic: false, isDetached: query.detach ?? false, durability: "later" } as const;
      if (query.forkable === true) await makeBranchable(services, { tenantId, id: params.id });
      const machine = await startMachine(services, { tenantId, keyId, id: params.id, signal, ...how });
      return { status: how.isDetached ? 202 : 200, body: machineInfo(machine, addresses) };
    },
    async stopMachine({ caller: { tenantId }, params: { id }, query, signal }) {
      const machine = await stopMachine(services, { tenantId, id, keepsMemory: query.keepMemory === true, signal });
      const counting = activity.written(id);
      if (counting !== null) await counting;
      return { status: 200, body: machineInfo(machine, addresses) };
    },
    listMachineEvents: (request) => timelineOf(services, request),
    getMachineUsage: (request) => usageInPeriod(context, request),
    createSnapshot: () => Promise.reject(new Refusal("not_implemented", "machine snapshots are not implemented")),
    listSnapshots: () => Promise.reject(new Refusal("not_implemented", "machine snapshots are not implemented")),
  };
}

/** A machine may have many of the last 30 days, and all of them would be in memory at once. */
const EVENTS_DEFAULT = 1000;

/** A request for a machine's events. */
interface TimelineRequest {
  readonly caller: Caller;
  readonly params: { readonly id: string };
  readonly query: { readonly type?: string; readonly limit?: number; readonly cursor?: string };
}

async function timelineOf(
  { cache, context }: Pick<MachineServices, "cache" | "context">,
  { caller, params, query }: TimelineRequest,
) {
  const name = { tenantId: caller.tenantId, id: params.id };
  const machine = cache.current(name) ?? (await cache.read(name));
  if (machine === undefined) throw machineNotFound(params.id);
  const { limit = EVENTS_DEFAULT, type = null, cursor } = query;
  if (query.limit === undefined && cursor === undefined) {
    const newest = await listNewest(context.db, { machineId: machine.id, type, limit });
    return { status: 200, headers: {}, body: newest.map(eventInfo) } as const;
  }
  const found = await listTimeline(context.db, {
    machineId: machine.id,
    type,
    after: parseSequence(cursor),
    limit: limit + 1,
  });
  const { items, headers } = page(found, limit, `/v1/machines/${machine.id}/events`, {
    cursorOf: ({ position }) => String(position),
    ...(type === null ? {} : { query: { type } }),
  });
  return { status: 200, headers, body: items.map(eventInfo) } as const;
}

type Queried = Parameters<typeof parsePeriod>[0];

/** A request for a machine's usage. */
interface UsageRequest {
  readonly caller: Caller;
  readonly params: { readonly id: string };
  readonly query: Queried;
}

async function usageInPeriod(context: Context, { caller, params: { id }, query }: UsageRequest) {
  const machine = await findAnyMachine(context.db, id);
  if (machine?.tenantId !== caller.tenantId) throw machineNotFound(id);
  return { status: 200, body: await usageOf(context, machine, query) } as const;
}

/**
 * By default of the current month of the tenant; of a deleted machine, of the month in which it was deleted,
 * up to then.
 */
async function usageOf(
  { clock, db }: Context,
  machine: MachineRecord,
  query: Queried = {},
): Promise<Static<typeof MachineUsageResponse>> {
  const now = clock.now();
  const { id: machineId, tenantId } = machine;
  const end = await readBillingTime(db, tenantId, machine.deletedAt ?? now);
  const period = parsePeriod(query, { end, startOf: (to) => monthUpTo(to).from });
  const usage = await readMachineUsage(db, { machineId, tenantId, now, ...period });
  return machineUsage(machineId, usage);
}

function shown(machine: MachineRecord | undefined, id: string, addresses: MachineServices["addresses"]) {
  if (machine === undefined) throw machineNotFound(id);
  return { status: 200, ...shownMachine(machine, addresses) } as const;
}

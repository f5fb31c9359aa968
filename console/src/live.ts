/**
 * Keeps what the page shows current: one stream of the tenant's events, from which follows what is read
 * again.
 *
 * Always:
 * - The stream begins after the newest event of before the first read, and continues after its last event, so
 *   no change is missed.
 * - While the page is hidden there is no stream: browsers allow few connections for all tabs. It continues
 *   where it was when the page is seen again.
 * - What has no events (operations, nodes, recorded calls) is named in the same stream when it changes. That
 *   is missed without the stream, so it is read again when the stream begins.
 * - What changes together is read once, READ_MS after the first event of it.
 */
import { type FollowedChange, FlotillaError, type MachineInfo, type Operation, type TenantEvent } from "@flotilla/sdk";
import { api, queries } from "./api.ts";
import { after, pause } from "./clock.ts";

/** `off`: the key may not read events; each page is read when it is opened. */
export type LiveState = "live" | "connecting" | "paused" | "off";

const READ_MS = 250;
const PAUSE_FIRST_MS = 500;
const PAUSE_MAX_MS = 15_000;
/** From so many machines on that changed at once, the whole list is read instead of each. */
const SINGLE_READS_MAX = 40;
const HIDDEN_MS = 20_000;

type Listener = () => void;
type Noted = FollowedChange | { readonly kind: string; readonly id: string };

const WITHOUT_EVENTS = ["operation", "node", "audit"];
/** What only changes by calls, which are recorded. */
const RECORDED = ["audit", "keys", "tenants", "plans", "packages", "webhooks", "invoices", "checkpoints"];
/** What the end of an operation of each kind has changed. */
const CHANGED_BY: readonly (readonly [kind: string, queryKey: string])[] = [
  ["image", "images"],
  ["node", "nodes"],
  ["export", "packages"],
  ["registry", "packages"],
  ["checkpoint", "checkpoints"],
];

class Live {
  #state: LiveState = "connecting";
  #cursor: string | undefined;
  #stream: AbortController | null = null;
  #stopHiding: () => void = () => undefined;
  readonly #listeners = new Set<Listener>();
  readonly #watchers = new Set<(event: TenantEvent) => void>();
  #changed = new Map<string, Set<string>>();
  #isReading = false;

  /** Starts it; the returned function ends it. */
  start(): () => void {
    const onVisibility = (): void => {
      this.#stopHiding();
      if (document.hidden) this.#stopHiding = after(HIDDEN_MS, () => this.#pause());
      else if (this.#stream === null) void this.#run();
    };
    document.addEventListener("visibilitychange", onVisibility);
    void this.#run();
    return () => {
      document.removeEventListener("visibilitychange", onVisibility);
      this.#pause();
      this.#cursor = undefined;
    };
  }

  /** Reads what a page shows when it is opened: the key may not follow events. */
  turnOff(): () => void {
    this.#become("off");
    queries.setDefaultOptions({ queries: { ...queries.getDefaultOptions().queries, staleTime: 0 } });
    return () => {
      queries.setDefaultOptions({
        queries: { ...queries.getDefaultOptions().queries, staleTime: Number.POSITIVE_INFINITY },
      });
    };
  }

  get state(): LiveState {
    return this.#state;
  }

  subscribe = (listener: Listener): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  /** Calls back for each event, as it comes. */
  watch(watcher: (event: TenantEvent) => void): () => void {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }

  #pause(): void {
    this.#stream?.abort();
    this.#stream = null;
    this.#become("paused");
  }

  #become(state: LiveState): void {
    this.#state = state;
    for (const listener of this.#listeners) listener();
  }

  async #run(): Promise<void> {
    const stream = new AbortController();
    this.#stream = stream;
    const { signal } = stream;
    for (let pauseMs = PAUSE_FIRST_MS; !signal.aborted; pauseMs = Math.min(pauseMs * 2, PAUSE_MAX_MS)) {
      this.#become("connecting");
      try {
        const isFirst = this.#cursor === undefined;
        this.#cursor ??= await newestCursor(signal);
        const cursor = this.#cursor === "" ? {} : { cursor: this.#cursor };
        const events = await api.followEvents({ query: cursor, signal }, (change) => this.#note(change));
        this.#become("live");
        pauseMs = PAUSE_FIRST_MS;
        // What has no events may have changed while nothing was followed.
        if (!isFirst) void queries.invalidateQueries({ predicate: ({ queryKey }) => queryKey[0] !== "machines" });
        for await (const event of events) this.#take(event);
      } catch (error) {
        if (error instanceof FlotillaError && (error.status === 401 || error.status === 403)) return;
      }
      if (!signal.aborted) await pause(pauseMs);
    }
  }

  #take(event: TenantEvent): void {
    this.#cursor = event.cursor;
    for (const watcher of this.#watchers) watcher(event);
    if (event.type === "machine.deleted") dropMachine(event.subject.id);
    const { appId } = event.data;
    if (typeof appId === "string") this.#note({ kind: "app", id: appId });
    this.#note(event.subject);
  }

  #note({ kind, id }: Noted): void {
    this.#changed.set(kind, (this.#changed.get(kind) ?? new Set()).add(id ?? ""));
    if (!this.#isReading) after(READ_MS, () => this.#readAgain());
    this.#isReading = true;
  }

  #readAgain(): void {
    const changed = this.#changed;
    this.#changed = new Map();
    this.#isReading = false;
    // An instance has another id than its machine, which has its own events.
    const machines = changed.get("machine") ?? new Set();
    if (machines.size > SINGLE_READS_MAX) void queries.invalidateQueries({ queryKey: ["machines"] });
    else for (const id of machines) if (!isDropped(id)) void readMachine(id);
    if (machines.size > 0)
      void queries.invalidateQueries({
        predicate: ({ queryKey: [family] }) => family === "account" || family === "nodes" || family === "pools",
      });
    if (changed.has("app") || changed.has("instance")) void queries.invalidateQueries({ queryKey: ["apps"] });
    if (changed.has("webhook")) void queries.invalidateQueries({ queryKey: ["webhooks"] });
    if (changed.has("tenant")) void queries.invalidateQueries({ queryKey: ["account"] });
    if (changed.has("node")) void queries.invalidateQueries({ queryKey: ["nodes"] });
    if (changed.has("audit"))
      void queries.invalidateQueries({
        predicate: ({ queryKey: [family] }) => RECORDED.includes(String(family)),
      });
    for (const id of changed.get("operation") ?? []) void readOperation(id);
    if ([...changed.keys()].some((kind) => !WITHOUT_EVENTS.includes(kind)))
      void queries.invalidateQueries({ queryKey: ["events"] });
  }
}

/** Reads an operation again, and puts it into the list. */
async function readOperation(id: string): Promise<void> {
  const operation = await api.getOperation(id).catch(() => null);
  if (operation !== null) putOperation(operation);
}

/** Puts what the server has answered of an operation into the lists that were read. */
export function putOperation(operation: Operation): void {
  const { id, kind, status, resource } = operation;
  queries.setQueryData(["operations", id], operation);
  queries.setQueryData<readonly Operation[]>(["operations"], (all) => {
    if (all === undefined) return undefined;
    const at = all.findIndex((each) => each.id === id);
    return at === -1 ? [operation, ...all] : all.with(at, operation);
  });
  if (status === "running") return;
  for (const [part, queryKey] of CHANGED_BY)
    if (kind.includes(part)) void queries.invalidateQueries({ queryKey: [queryKey] });
  if (resource.kind === "machine") void queries.invalidateQueries({ queryKey: ["machine-parts", resource.id] });
}

/** Reads a machine again, and puts it into the lists that were read. */
async function readMachine(id: string): Promise<void> {
  void queries.invalidateQueries({ queryKey: ["machine-parts", id] });
  try {
    putMachine(await api.getMachine(id));
  } catch (error) {
    if (!(error instanceof FlotillaError) || error.status !== 404) return;
    dropMachine(id);
  }
}

/** Machines that were deleted while the page was open: nothing asks for them again. */
const dropped = new Set<string>();
const isDropped = (id: string): boolean => dropped.has(id);

/** Takes a machine that was deleted out of the lists. */
export function dropMachine(id: string): void {
  dropped.add(id);
  queries.setQueryData<readonly MachineInfo[]>(["machines"], (all) => all?.filter((each) => each.id !== id));
  queries.setQueryData<MachineInfo | null>(["machine", id], (known) => (known === undefined ? undefined : null));
}

/** Puts what the server has answered of a machine into the lists that were read. */
export function putMachine(machine: MachineInfo): void {
  queries.setQueryData(["machine", machine.id], machine);
  queries.setQueryData<readonly MachineInfo[]>(["machines"], (all) => {
    if (all === undefined) return undefined;
    const at = all.findIndex((each) => each.id === machine.id);
    return at === -1 ? [machine, ...all] : all.with(at, machine);
  });
}

/** The cursor of the newest event; empty: there is none. A filter that nothing matches reads no event. */
async function newestCursor(signal: AbortSignal): Promise<string> {
  let cursor = "";
  const onHeaders = (headers: Headers): void => void (cursor = headers.get("x-cursor") ?? "");
  await api.listEvents({ query: { limit: 1, type: "machine.none" }, onHeaders, signal });
  return cursor;
}

export const live = new Live();

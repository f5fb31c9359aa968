/**
 * The handlers of interactive terminals: everything that can be refused is refused before the connection
 * becomes a WebSocket. Only that a kept terminal has ended is said by the WebSocket, because browsers hide
 * the answer of a refused one, and their terminals must know when to stop coming back.
 */
import type { WebSocket } from "ws";
import { TERMINAL_ID } from "@flotilla/contract/patterns";
import type { HandlersOf } from "../../api/handler.ts";
import { machineNotFound } from "../../auth/not-found.ts";
import { acceptWebSocket, type UpgradeHandler } from "../../http/upgrade.ts";
import { resumeKeyOf } from "../../link/exec-frames.ts";
import {
  type KeptTerminal,
  type KeptTerminalOptions,
  openKeptTerminal,
  TerminalEnded,
} from "../../link/kept-terminal.ts";
import { openOnNode } from "../../link/open-exec.ts";
import { NodeUnreachable, NotRunning } from "../../link/refusals.ts";
import { checkArguments, checkEnvironment, environmentOf } from "../environment.ts";
import { locateFor } from "../locate.ts";
import { type MachineRecord, nodeOf } from "../record.ts";
import { type InMachineOptions, inRunningMachine, whenAgentListens } from "../running.ts";
import type { MachineServices } from "../services.ts";
import { includes, phaseOf, UNREACHABLE_STATUSES } from "../state.ts";
import { closeReason } from "./frames.ts";
import { CLOSE_ENDED, serveKept } from "./kept.ts";
import { serveTerminal } from "./terminal.ts";

/** The specification's limit: a terminal is open for at most an hour. The node keeps the time. */
const TERMINAL_MS_MAX = 60 * 60_000;
const PROGRAM_DEFAULT = "/bin/sh";
const COLS_DEFAULT = 80;
const ROWS_DEFAULT = 24;
/** How long a kept terminal is looked for at its node, whose agent may be starting. Once, if it is away. */
const SEARCH_MS = 20_000;
const SEARCH_PAUSE_MS = 50;
const NOT_RUNNING = "the terminal has ended: its machine does not run";

type Terminals = HandlersOf<"openTerminal" | "watchTerminal">;
type OpenRequest = Parameters<Terminals["openTerminal"]>[0];

export function terminalHandlers(services: MachineServices): Terminals {
  return {
    async openTerminal(request) {
      const { caller, params, query, signal, recordSent } = request;
      const { terminal: resumeKey, offset } = query;
      const { tenantId, keyId } = caller;
      const where = { tenantId, keyId, id: params.id, signal, recordSent };
      if (resumeKey === undefined) return await openPlain(services, request, where);
      if (offset === undefined) return await openKept(services, request, where);
      const { cols, rows } = query;
      const message = {
        ...{ resumeKey, stdoutBytes: offset, stderrBytes: 0, elapsedMs: 0, timeoutMs: TERMINAL_MS_MAX, hasStdin: true },
        terminal: cols && rows ? { cols, rows } : null,
      };
      return await continueKept(services, where, { id: resumeKey, first: { type: "resume", message } });
    },
    async watchTerminal({ caller: { tenantId, keyId }, params, query, signal, recordSent }) {
      const where = { tenantId, keyId, id: params.id, signal, recordSent };
      const { terminal_id: id } = params;
      // No terminal has such an id.
      if (!new RegExp(TERMINAL_ID).test(id)) {
        await machineOf(services, where);
        return { status: 101, upgrade: endedUpgrade(services, "the terminal was not found") };
      }
      const message = { resumeKey: id, stdoutBytes: query.offset ?? 0 };
      return await continueKept(services, where, { id, first: { type: "watch", message } });
    },
  };
}

function startOf({ query }: OpenRequest, resumeKey: string) {
  const program = query.cmd || query.command || PROGRAM_DEFAULT;
  return {
    argv: checkArguments([program, ...(query.arg ?? [])], "pass it in a file"),
    cwd: query.cwd || null,
    env: checkEnvironment(environmentOf(query.env ?? [])),
    user: query.user || null,
    timeoutMs: TERMINAL_MS_MAX,
    isBackground: false,
    hasStdin: true,
    terminal: { cols: query.cols || COLS_DEFAULT, rows: query.rows || ROWS_DEFAULT },
    resumeKey,
  };
}

async function openPlain(services: MachineServices, request: OpenRequest, where: InMachineOptions) {
  const { context, link } = services;
  const { id, signal } = where;
  const start = startOf(request, resumeKeyOf(context));
  const exec = await inRunningMachine(services, where, (machine) => {
    const node = nodeOf(machine);
    const locate = locateFor(services, machine);
    const options = { tenantId: machine.tenantId, machineId: id, start, signal, locate };
    return whenAgentListens(services, signal, () => openOnNode(link, node, options));
  });
  const upgrade: UpgradeHandler = (connection, headers) => {
    const { closing } = connection;
    const onOpen = (socket: WebSocket): void =>
      void serveTerminal(socket, exec, { closing, signal, onEnd: countUse(services, id) });
    acceptWebSocket(connection, headers, { clock: context.clock, onOpen });
  };
  return { status: 101, upgrade } as const;
}

/** Begins a terminal that is kept. */
async function openKept(services: MachineServices, request: OpenRequest, where: InMachineOptions) {
  const { link } = services;
  const { id, signal } = where;
  const key = request.query.terminal ?? "";
  const start = startOf(request, key);
  const terminal = await inRunningMachine(services, where, (machine) => {
    const options = {
      tenantId: machine.tenantId,
      machineId: id,
      first: { type: "start", message: start },
      signal,
    } as const;
    return whenAgentListens(services, signal, () => openKeptTerminal(link, nodeOf(machine), options));
  });
  return keptAnswer(services, where, { terminal, key, isReader: false });
}

/** Continues or reads one; neither starts a machine. */
async function continueKept(
  services: MachineServices,
  where: InMachineOptions,
  { id: key, first }: { readonly id: string; readonly first: KeptTerminalOptions["first"] },
) {
  const isReader = first.type === "watch";
  const machine = await machineOf(services, where);
  where.recordSent();
  try {
    const terminal = await findKept(services, machine, { first, signal: where.signal });
    return keptAnswer(services, where, { terminal, key, isReader });
  } catch (error) {
    if (error instanceof TerminalEnded) return { status: 101, upgrade: endedUpgrade(services, error.message) } as const;
    throw error;
  }
}

/** The caller's machine. Throws when there is none. */
async function machineOf({ cache }: MachineServices, { tenantId, id }: InMachineOptions): Promise<MachineRecord> {
  const machine = cache.find({ tenantId, id }) ?? (await cache.read({ tenantId, id }));
  if (machine === undefined) throw machineNotFound(id);
  return machine;
}

async function findKept(
  services: MachineServices,
  machine: MachineRecord,
  { first, signal }: Pick<KeptTerminalOptions, "first" | "signal">,
): Promise<KeptTerminal> {
  const { context, link } = services;
  const { clock } = context;
  const isThere = machine.moveId !== null || ["running", "starting"].includes(phaseOf(machine));
  if (!isThere) throw new TerminalEnded(NOT_RUNNING);
  const locate = locateFor(services, machine);
  const isAway = machine.nodeStatus !== null && includes(UNREACHABLE_STATUSES, machine.nodeStatus);
  let until = clock.monotonic() + (isAway ? 0 : SEARCH_MS);
  for (let isStale = false; ; ) {
    const { node, hasWaited } = await locate({ isStale }).catch((error: unknown) => {
      throw new TerminalEnded(NOT_RUNNING, { cause: error });
    });
    if (hasWaited) until = clock.monotonic() + SEARCH_MS;
    try {
      return await openKeptTerminal(link, node, { tenantId: machine.tenantId, machineId: machine.id, first, signal });
    } catch (error) {
      isStale = error instanceof NotRunning;
      if (!isStale && !(error instanceof NodeUnreachable)) throw error;
      if (signal.aborted || clock.monotonic() >= until)
        throw isStale ? new TerminalEnded(NOT_RUNNING, { cause: error }) : error;
      await clock.sleep(SEARCH_PAUSE_MS, signal);
    }
  }
}

function keptAnswer(
  services: MachineServices,
  { id, signal }: InMachineOptions,
  { terminal, key, isReader }: { readonly terminal: KeptTerminal; readonly key: string; readonly isReader: boolean },
) {
  const { clock } = services.context;
  const leave = (): void => terminal.detach();
  signal.addEventListener("abort", leave, { once: true });
  if (signal.aborted) leave();
  const upgrade: UpgradeHandler = (connection, headers) => {
    const { closing } = connection;
    const onOpen = (socket: WebSocket): void => {
      signal.removeEventListener("abort", leave);
      // Looking does not count as use of a machine.
      const onEnd = isReader ? () => undefined : countUse(services, id);
      void serveKept(socket, terminal, { closing, signal, onEnd, id: key, isReader });
    };
    acceptWebSocket(connection, headers, { clock, onOpen });
  };
  return { status: 101, upgrade } as const;
}

function endedUpgrade({ context: { clock } }: MachineServices, reason: string): UpgradeHandler {
  const onOpen = (socket: WebSocket): void => socket.close(CLOSE_ENDED, closeReason(reason));
  return (connection, headers) => acceptWebSocket(connection, headers, { clock, onOpen });
}

/** The terminal is a use of its machine from now on, until the result is called. */
function countUse({ activity, context: { clock } }: MachineServices, id: string): (exitCode: number | null) => void {
  activity.execBegan(id);
  const startedAt = clock.monotonic();
  return (exitCode) => activity.execEnded(id, exitCode, clock.monotonic() - startedAt);
}

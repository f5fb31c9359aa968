/**
 * The handler of interactive terminals: everything that can be refused is refused before the connection
 * becomes a WebSocket.
 */
import type { WebSocket } from "ws";
import type { HandlersOf } from "../../api/handler.ts";
import { acceptWebSocket } from "../../http/upgrade.ts";
import { resumeKeyOf } from "../../link/exec-frames.ts";
import { openOnNode } from "../../link/open-exec.ts";
import { checkArguments, checkEnvironment, environmentOf } from "../environment.ts";
import { inRunningMachine, whenAgentListens } from "../running.ts";
import type { MachineServices } from "../services.ts";
import { serveTerminal } from "./terminal.ts";
import { nodeOf } from "../record.ts";
import { locateFor } from "../locate.ts";

/** The specification's limit: a terminal is open for at most an hour. The node keeps the time. */
const TERMINAL_MS_MAX = 60 * 60_000;
const PROGRAM_DEFAULT = "/bin/sh";
const COLS_DEFAULT = 80;
const ROWS_DEFAULT = 24;

export function terminalHandlers(services: MachineServices): HandlersOf<"openTerminal"> {
  const { activity, context, link } = services;
  const { clock } = context;
  return {
    async openTerminal({ caller, params, query, signal, recordSent }) {
      const program = query.cmd || query.command || PROGRAM_DEFAULT;
      const start = {
        argv: checkArguments([program, ...(query.arg ?? [])], "pass it in a file"),
        cwd: query.cwd || null,
        env: checkEnvironment(environmentOf(query.env ?? [])),
        user: query.user || null,
        timeoutMs: TERMINAL_MS_MAX,
        isBackground: false,
        hasStdin: true,
        terminal: { cols: query.cols || COLS_DEFAULT, rows: query.rows || ROWS_DEFAULT },
        resumeKey: resumeKeyOf(context),
      };
      const { id } = params;
      const { tenantId, keyId } = caller;
      const exec = await inRunningMachine(services, { tenantId, keyId, id, signal, recordSent }, (machine) => {
        const node = nodeOf(machine);
        const locate = locateFor(services, machine);
        const options = { tenantId: machine.tenantId, machineId: id, start, signal, locate };
        return whenAgentListens(services, signal, () => openOnNode(link, node, options));
      });
      return {
        status: 101,
        upgrade(upgrade, headers) {
          const { closing } = upgrade;
          const onOpen = (socket: WebSocket): void => {
            activity.execBegan(id);
            const startedAt = clock.monotonic();
            const onEnd = (exitCode: number | null): void =>
              activity.execEnded(id, exitCode, clock.monotonic() - startedAt);
            void serveTerminal(socket, exec, { closing, signal, onEnd });
          };
          acceptWebSocket(upgrade, headers, { clock, onOpen });
        },
      };
    },
  };
}

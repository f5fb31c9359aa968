/**
 * `flotilla machine sessions NAME`: the sessions of a machine, with their current directories; with --rm ends
 * one of them.
 *
 * No verb creates a session: `machine exec --session` does, with its first command.
 */
import { renderSpan } from "@flotilla/base/span";
import type { Call } from "../call.ts";
import { clean } from "../table.ts";
import { findMachineId } from "./find.ts";

export interface SessionsOptions {
  readonly rm?: string;
}

export async function run(call: Call, [reference = ""]: readonly string[], { rm }: SessionsOptions): Promise<void> {
  const { output, world } = call;
  const flotilla = call.flotilla();
  const id = await findMachineId(flotilla, reference);
  if (rm !== undefined) {
    await flotilla.deleteSession(id, rm);
    return output.isJson ? undefined : output.line(rm);
  }
  const sessions = await flotilla.listSessions(id);
  if (output.isJson) return output.json(sessions);
  if (sessions.length === 0) return output.note("no sessions; `flotilla machine exec --session ID` makes one");
  const now = world.clock.now();
  output.table(
    ["SESSION", "DIRECTORY", "VARIABLES", "LAST COMMAND"],
    sessions.map((session) => [
      session.id,
      clean(session.cwd ?? ""),
      clean(Object.keys(session.env).join(" ")),
      session.lastExecAt === null ? "never" : `${renderSpan(now - Date.parse(session.lastExecAt))} ago`,
    ]),
  );
}

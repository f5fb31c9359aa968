/**
 * `flotilla machine events NAME`: what happened to a machine, oldest first.
 *
 * Messages may repeat what a guest said, so they are cleaned before a terminal sees them.
 */
import type { EventInfo } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import type { Style } from "../output.ts";
import { clean } from "../table.ts";
import { findMachineId } from "./find.ts";

const STYLES: Readonly<Record<EventInfo["level"], Style>> = { info: "dim", warn: "yellow", error: "red" };

export async function run(call: Call, [reference = ""]: readonly string[]): Promise<void> {
  const flotilla = call.flotilla();
  const events = await flotilla.listMachineEvents(await findMachineId(flotilla, reference));
  if (call.output.isJson) return call.output.json(events);
  for (const { createdAt, level, message } of events) {
    call.output.line(`${createdAt}  ${call.output.style(STYLES[level], level.padEnd(5))}  ${clean(message)}`);
  }
}

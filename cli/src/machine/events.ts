/**
 * `flotilla machine events NAME`: what happened to a machine, oldest first; with --follow also new events.
 *
 * Messages may contain guest output, so control characters are removed before a terminal shows them. --follow
 * polls, because the API has no stream of events.
 */
import { type EventInfo, FlotillaError } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { type Style, styled } from "../output.ts";
import { whileUnreachable } from "../server-unreachable.ts";
import { findMachineId } from "./find.ts";

const STYLES: Readonly<Record<EventInfo["level"], Style>> = { info: "dim", warn: "yellow", error: "red" };
const POLL_MS = 1_000;

export interface EventsOptions {
  readonly follow?: boolean;
  readonly type?: string;
}

export async function run(call: Call, [reference = ""]: readonly string[], options: EventsOptions): Promise<void> {
  const flotilla = call.flotilla();
  const id = await findMachineId(flotilla, reference);
  const query = options.type === undefined ? {} : { type: options.type };
  const first = await flotilla.listMachineEvents(id, { query });
  if (options.follow === true)
    return follow(call, (limit) => flotilla.listMachineEvents(id, { query, ...limit }), first);
  if (call.output.isJson) return call.output.json(first);
  for (const event of first) show(call, event);
}

/** Ends when the machine is deleted, not when the server restarts. With --json each event is one line. */
async function follow(
  call: Call,
  ask: (limit: { readonly timeoutMs: number }) => Promise<readonly EventInfo[]>,
  first: readonly EventInfo[],
): Promise<void> {
  const seen = new Set<string>();
  for (let events = first; ; ) {
    for (const event of events.filter((one) => !seen.has(one.id))) {
      seen.add(event.id);
      if (call.output.isJson) await call.output.jsonLine(event);
      else show(call, event);
    }
    await call.world.clock.sleep(POLL_MS);
    try {
      events = await whileUnreachable(call, ask);
    } catch (error) {
      if (error instanceof FlotillaError && error.status === 404) return;
      throw error;
    }
  }
}

function show({ output }: Call, { createdAt, level, message }: EventInfo): void {
  output.line(`${createdAt}  `, styled(STYLES[level], level.padEnd(5)), `  ${message}`);
}

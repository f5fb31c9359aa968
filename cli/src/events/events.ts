/**
 * `flotilla events`: what happened to the tenant's machines, apps and webhooks, oldest first; with --follow
 * also new events.
 *
 * Messages may contain guest output, so control characters are removed before a terminal shows them. --follow
 * asks again with the cursor of the last answer, so it misses none, also when the server restarts.
 */
import { type Flotilla, FlotillaError, type TenantEvent } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { Failure } from "../failure.ts";
import { findMachineId } from "../machine/find.ts";
import { type Style, styled } from "../output.ts";
import { whileUnreachable } from "../server-unreachable.ts";

const STYLES: Readonly<Record<TenantEvent["level"], Style>> = { info: "dim", warn: "yellow", error: "red" };
const ASK_AGAIN_MS = 1_000;
const PAGE = 1_000;

/** No app has a name of this form. */
const APP_ID = /^app-[0-9a-f]{32}$/;

export interface TenantEventsOptions {
  readonly app?: string;
  readonly follow?: boolean;
  readonly from?: string;
  readonly machine?: string;
  readonly type?: string;
}

export async function run(call: Call, _operands: readonly string[], options: TenantEventsOptions): Promise<void> {
  const flotilla = call.flotilla();
  const { app } = options;
  const filter = {
    ...(app === undefined ? {} : { app: APP_ID.test(app) ? app : await appId(flotilla, app) }),
    ...(options.machine === undefined ? {} : { machine: await machineId(flotilla, options.machine) }),
    ...(options.type === undefined ? {} : { type: options.type }),
  };
  const all: TenantEvent[] = [];
  for (let cursor = options.from, isFirst = true; ; isFirst = false) {
    const query = { ...filter, limit: PAGE, ...(cursor === undefined ? {} : { cursor }) };
    const onHeaders = (headers: Headers): void => void (cursor = headers.get("x-cursor") ?? cursor);
    const ask = (limit?: { readonly timeoutMs: number }) => flotilla.listEvents({ query, onHeaders, ...limit });
    const events = isFirst ? await ask() : await whileUnreachable(call, ask);
    if (call.output.isJson && options.follow !== true) all.push(...events);
    else await show(call, events);
    if (events.length === PAGE) continue;
    if (options.follow !== true) break;
    await call.world.clock.sleep(ASK_AGAIN_MS);
  }
  if (call.output.isJson) call.output.json(all);
}

/** Throws a Failure when there is no such app now. */
async function appId(flotilla: Flotilla, name: string): Promise<string> {
  try {
    return (await flotilla.getApp(name)).id;
  } catch (error) {
    if (!(error instanceof FlotillaError) || error.status !== 404) throw error;
    throw new Failure(
      `there is no app called "${name}"`,
      "`flotilla app ls` lists apps; name a destroyed one by its id",
    );
  }
}

/** Throws a Failure when there is no such machine now: a deleted one is found by its whole id only. */
async function machineId(flotilla: Flotilla, reference: string): Promise<string> {
  try {
    return await findMachineId(flotilla, reference);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    throw new Failure(error.message, `${error.advice}; name a deleted machine by its whole id`);
  }
}

/** With --json each event is one line. */
async function show({ output }: Call, events: readonly TenantEvent[]): Promise<void> {
  for (const event of events) {
    const { createdAt, level, message, subject } = event;
    if (output.isJson) await output.jsonLine(event);
    else {
      output.line(`${createdAt}  `, styled(STYLES[level], level.padEnd(5)), `  ${subject.id}  ${message}`);
    }
  }
}

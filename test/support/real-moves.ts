/**
 * Moves of real machines, for tests of what becomes of their memory.
 */
import assert from "node:assert/strict";
import type { Flotilla } from "./flotilla.ts";
import { until } from "./until.ts";

/** What the step "stop it" of a move says when the machine was handed over while it ran. */
export const LIVE = "it was paused, and its memory is on the other node";

/** A node makes the template of a size in the background, when machines of it were started. */
const TEMPLATE = { deadlineMs: 180_000, everyMs: 5_000 };

/**
 * A machine that runs and was restored from a template. The first of its size on a node is booted without
 * one, and is suspended for its moves, so machines are made until one was not.
 */
export const restoredMachine = (flotilla: Flotilla, body: object = {}): Promise<string> =>
  until(
    async () => {
      const { id } = await flotilla.create(body);
      await flotilla.start(id);
      const { startTimings } = (await flotilla.client().get(`/v1/machines/${id}`)).json;
      if ((startTimings?.vm ?? "boot") !== "boot") return id;
      await flotilla.remove(id);
      return false;
    },
    { what: "a machine that was restored from a template", ...TEMPLATE },
  );

export interface EndedMove {
  readonly status: string;
  readonly error: string | null;
  readonly steps: readonly { readonly message: string; readonly downtimeMs?: number }[];
}

/** Requests a move; to the only other node unless `to` is given. Resolves with the operation's id. */
export async function requestMove(flotilla: Flotilla, id: string, to?: string, server = 0): Promise<string> {
  const body = to === undefined ? {} : { nodeId: to };
  const asked = await flotilla.client(server).post(`/v1/machines/${id}/move`, body);
  assert.equal(asked.status, 202, asked.text);
  return asked.json.id;
}

/** The operation of a move when it has ended, in whatever way. */
export const endedMove = (flotilla: Flotilla, operation: string): Promise<EndedMove> =>
  until(
    async () => {
      const { json } = await flotilla.client().get(`/v1/operations/${operation}`);
      return json.status !== "running" && (json as EndedMove);
    },
    { what: "the move to end", deadlineMs: 120_000, everyMs: 50 },
  );

/**
 * Moves a machine that runs, and throws unless it was handed over while it ran and its processes continued.
 */
export async function moveLive(flotilla: Flotilla, id: string, to?: string, server = 0): Promise<EndedMove> {
  const done = await endedMove(flotilla, await requestMove(flotilla, id, to, server));
  assert.equal(done.status, "succeeded", `${done.error} ${JSON.stringify(done.steps)}`);
  assert.match(done.steps[4]?.message ?? "", /its processes continued after a pause of \d+ ms$/);
  assert.equal(done.steps[1]?.message, LIVE);
  return done;
}

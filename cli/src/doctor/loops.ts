/**
 * `flotilla doctor --fleet`: whether the loops of the server that answers do their work. Pure.
 */
import type { LoopStatus, ServerLoops } from "@flotilla/sdk";
import { renderSpan } from "@flotilla/base/span";
import type { Check } from "./check.ts";

/** One failure passes by itself: the database restarted, for example. */
const FAILURES_BAD = 3;
/** Every loop takes a bounded batch at a time. */
const RUNNING_MS_MAX = 5 * 60_000;

export function loopChecks({ host, loops }: ServerLoops, now: number): readonly Check[] {
  const found = loops.flatMap((loop) => loopCheck(loop, host, now));
  if (found.length > 0) return found;
  return [{ name: `loops of ${host}`, status: "ok", value: `${loops.length} work`, meaning: "" }];
}

function loopCheck(
  { name, purpose, failures, lastError, runningSince }: LoopStatus,
  host: string,
  now: number,
): Check[] {
  const check = { name: `loop ${name} of ${host}` };
  if (failures > 0) {
    const value = `${failures} ${failures === 1 ? "run" : "runs in a row"} had errors: ${lastError}`;
    const meaning = `it ${purpose}; the server's log has every error`;
    return [{ ...check, status: failures >= FAILURES_BAD ? "bad" : "warn", value, meaning }];
  }
  const ms = runningSince === null ? 0 : now - Date.parse(runningSince);
  if (ms <= RUNNING_MS_MAX) return [];
  const meaning = `it ${purpose}; nothing of that happens on this server until the run ends, and a restart ends it`;
  return [{ ...check, status: "warn", value: `has been running for ${renderSpan(ms)}`, meaning }];
}

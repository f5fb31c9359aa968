/**
 * What the server asks of a node as a whole: that its machines are suspended because its host is about to
 * end, and that its agent runs again as the program that is installed there.
 */
import type { Clock } from "@flotilla/base/clock";
import { ownMessageOf } from "@flotilla/base/errors";
import { readRestartRequest, readSuspendAllRequest } from "@flotilla/contract/link/generated";
import type { Fleet } from "../machines/fleet.ts";
import { refuse, sendJson } from "./answer.ts";
import { readJson } from "./bodies.ts";
import type { Exchange } from "./exchange.ts";

/** How the agent ends, to run again as the program that is installed on its host. */
export interface AgentRestart {
  /** Throws an Error that says why the installed program cannot run. */
  readonly installedRelease: () => Promise<string>;
  /** Ends the agent. */
  readonly begin: (release: string) => void;
}

export interface HostParts {
  readonly fleet: Fleet;
  readonly clock: Clock;
  /** This incarnation of the agent. */
  readonly bootId: string;
  /** Absent: the agent cannot be restarted by a request. */
  readonly restart?: AgentRestart;
  /** Whether the agent ends already. */
  readonly isStopping: () => boolean;
}

/** Suspends the machines whose owners allow it, because the host is about to end. */
export async function suspendAll(
  { request, response, signal }: Exchange,
  { fleet, clock }: Pick<HostParts, "fleet" | "clock">,
): Promise<void> {
  const { deadlineMs } = readSuspendAllRequest(await readJson(request, clock));
  sendJson(response, 200, await fleet.suspendAll(deadlineMs, signal));
}

export function resumeAll({ response }: Exchange, { fleet }: Pick<HostParts, "fleet">): void {
  fleet.resumeAll();
  sendJson(response, 200, {});
}

/** A request for an earlier incarnation, which was repeated, restarts nothing. */
export async function restartAgent(
  { request, response }: Exchange,
  { bootId, restart, clock, isStopping }: HostParts,
): Promise<void> {
  const { agentBootId } = readRestartRequest(await readJson(request, clock));
  if (restart === undefined)
    return refuse(response, 400, { code: "invalid", message: "this agent cannot restart itself" });
  let release: string;
  try {
    release = await restart.installedRelease();
  } catch (error) {
    const message = `the program that is installed there does not run: ${ownMessageOf(error)}`;
    return refuse(response, 409, { code: "not_runnable", message });
  }
  const isMeant = agentBootId === bootId && !isStopping();
  // The answer reaches its caller before connections end.
  if (isMeant) response.once("finish", () => restart.begin(release));
  response.shouldKeepAlive = false;
  sendJson(response, 200, { agentBootId: bootId, release });
}

/**
 * The state of a machine as people read it, and what may be done in it.
 */
import type { MachineInfo } from "@flotilla/sdk";
import { Badge, type Tone } from "./ui/parts.tsx";

interface Shown {
  readonly text: string;
  readonly tone: Tone;
  /** Why, where there is more to say. */
  readonly why: string | null;
}

/** What is shown of a machine's state. */
export function stateOf(machine: MachineInfo): Shown {
  const { state, error, pauseReason, suspendedAt, unresponsiveSince, ready } = machine;
  if (state === "error") return { text: "error", tone: "bad", why: error };
  if (pauseReason !== null) return { text: "paused", tone: "warn", why: pauseReason };
  if (unresponsiveSince !== null)
    return { text: "unresponsive", tone: "warn", why: "its agent does not answer; a start restarts the machine" };
  if (suspendedAt !== null && state === "stopped")
    return { text: "suspended", tone: "off", why: "its memory is kept; a start continues its processes" };
  if (state === "creating") return { text: "starting", tone: "busy", why: null };
  if (state === "started" && !ready)
    return { text: "started, not ready", tone: "busy", why: "no published port has accepted a connection yet" };
  return { text: state, tone: state === "started" ? "good" : "off", why: null };
}

export function StateBadge({ machine }: { readonly machine: MachineInfo }) {
  const { text, tone } = stateOf(machine);
  return <Badge tone={tone}>{text}</Badge>;
}

/** Running, or about to. */
export const isUp = ({ state }: MachineInfo): boolean => state === "started" || state === "creating";

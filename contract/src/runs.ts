/**
 * Runs: what a machine's uptime, and so its bill, is computed from. A run is one boot of a machine, from the
 * moment it is running to the end of its VM.
 *
 * Always: a record of a run holds everything that is known of it, so records may be repeated, late or out of
 * order. A run that has ended never changes again.
 */

/**
 * Why a run ended. `stop`, `delete`: it was asked for. `poweroff`: the guest powered itself off. `crash`: the
 * VM ended without being asked to. `unresponsive`: the node ended the VM because its guest agent did not
 * answer. `unseen`: the VM ended while no node agent was there to see it, as when the host lost its power.
 * `fenced`: the node was cut off from all servers, and the VM was fenced (decision 63). `unknown`: the node
 * named a cause that its server does not know.
 */
export const RUN_END_CAUSES = [
  "stop",
  "delete",
  "poweroff",
  "crash",
  "unresponsive",
  "unseen",
  "fenced",
  "unknown",
] as const;
export type RunEndCause = (typeof RUN_END_CAUSES)[number];

/** Events of timelines in one heartbeat; a node sends the others with the next one. */
export const EVENTS_PER_REPORT_MAX = 1_000;
/** Runs in one heartbeat that reports changes. */
export const RUNS_PER_REPORT_MAX = 1_000;
/** Runs in one heartbeat that reports everything. */
export const RUNS_PER_COMPLETE_REPORT_MAX = 10_000;

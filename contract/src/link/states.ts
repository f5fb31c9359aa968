/**
 * The desired and the observed states of a machine.
 */

/** What the server wants of a machine on a node. `absent` removes the machine and its disk for good. */
export const DESIRED_STATES = ["running", "stopped", "absent"] as const;
export type DesiredState = (typeof DESIRED_STATES)[number];

/**
 * What a node sees of a machine.
 * `absent`: no trace. `stopped`: disk or nothing yet, no VMM. `preparing`: image or disk is being made.
 * `booting`: a VMM runs, its agent has not answered. `running`: the agent has answered and is configured.
 * `stopping`: being shut down. `failed`: the last attempt to run it ended; `reason` says why.
 */
export const OBSERVED_STATES = ["absent", "stopped", "preparing", "booting", "running", "stopping", "failed"] as const;
export type ObservedState = (typeof OBSERVED_STATES)[number];

/** States in which nothing moves until something is asked. */
export const SETTLED_STATES = ["absent", "stopped", "running", "failed"] as const satisfies readonly ObservedState[];

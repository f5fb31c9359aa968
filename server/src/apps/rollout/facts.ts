/**
 * What a rollout is planned from, and what a plan says. Pure.
 *
 * Instants are epoch milliseconds, durations milliseconds.
 */

/**
 * `unmade`: its machine is not made yet. `starting`: it does not run yet. `failed`: it cannot run. `lost`:
 * its node is, so nothing is known of it. `gone`: nothing is left of it.
 */
export type InstanceState = "unmade" | "starting" | "running" | "failed" | "lost" | "gone";

/** `unknown`: its check has not had a result since it was made. */
export type Health = "unknown" | "healthy" | "unhealthy";

export interface Instance {
  readonly id: string;
  /** The number of its release. */
  readonly release: number;
  readonly nodeId: string | null;
  /** Its node is drained: it is replaced as if it were of another release, and serves until then. */
  readonly isDrained: boolean;
  readonly state: InstanceState;
  readonly health: Health;
  /** Since when its health is what it is; null: that is unknown, and it is not replaced for it. */
  readonly healthSince: number | null;
  /** Why it failed, or is unhealthy. */
  readonly reason: string | null;
  /** It failed, and so will each other one of its release: its image does not exist, or is refused. */
  readonly isHopeless: boolean;
  readonly madeAt: number;
  /** It is in the table of targets. */
  readonly isRouted: boolean;
  /** Every live ingress serves the table as it has been since this instance was last put in or taken out. */
  readonly isConfirmed: boolean;
  /** Since when it is not in the table, after it was; null: it is, or never was. */
  readonly unroutedAt: number | null;
  readonly openRequests: number;
  /** When it was decided to remove it; null: it is wanted. Never undone. */
  readonly retiredAt: number | null;
  /** Its removal was asked for. */
  readonly isRemoved: boolean;
}

export interface Rolling {
  readonly type: "rolling";
  readonly batchSize: number;
  /** Pause between batches; 0 where the health check decides. */
  readonly waitMs: number;
}

export interface Canary {
  readonly type: "canary";
  readonly canaryCount: number;
  /** Whether canaries that serve are promoted without a person. */
  readonly autoPromote: boolean;
}

export interface BlueGreen {
  readonly type: "blueGreen";
}

export type Strategy = Rolling | Canary | BlueGreen;

/**
 * `placing`: instances are made and started. `checking`: they run, and their first success is awaited.
 * `routing`: ingresses confirm the table. `pausing`: between batches. `awaitingPromotion`: a person decides.
 * `retiring`: what was replaced ends its requests.
 */
const PHASES = ["placing", "checking", "routing", "pausing", "awaitingPromotion", "retiring"] as const;
export type Phase = (typeof PHASES)[number];

/** How far a rollout is, and since when: its clocks start again when either changes. */
export interface Progress {
  readonly phase: Phase;
  readonly phaseSince: number;
  /** Most instances of its release that served at once. */
  readonly served: number;
  readonly servedSince: number;
}

export interface Rollout {
  readonly to: number;
  readonly strategy: Strategy;
  /** The canaries are promoted, or traffic was switched. Never undone. */
  readonly isPromoted: boolean;
  /** null: it was never planned. */
  readonly progress: Progress | null;
  /** How long `placing` may take. */
  readonly placingMs: number;
  /** How long `checking` may take. */
  readonly checkingMs: number;
}

export interface AppFacts {
  /** How many instances are to serve. */
  readonly count: number;
  readonly isDestroyed: boolean;
  /** The release that was rolled out last; null: none ever was. */
  readonly current: number | null;
  /** null: none is under way. */
  readonly rollout: Rollout | null;
  /** Instances that are gone need not be among them. */
  readonly instances: readonly Instance[];
  /** How many instances more than `count` may run while instances are replaced without a rollout. */
  readonly surge: number;
  /** How long requests of an instance that was taken out of the table may continue. */
  readonly graceMs: number;
  /** An instance that stays unhealthy this long is replaced. */
  readonly unhealthyMs: number;
  /** After instances failed, none is made before this instant; null: any time. */
  readonly retryAt: number | null;
}

/** What a strategy wants of the instances, as they are now. */
export interface Goal {
  /** How many instances of the new release there are to be. */
  readonly to: number;
  /** How many of all others. */
  readonly others: number;
  /** Whether others that are missing are made, of the release that was rolled out last. */
  readonly refills: boolean;
  /** How many instances more than asked may use nodes; none is made above it. */
  readonly surge: number;
  /** Whose healthy instances are in the table. */
  readonly routed: "to" | "others" | "all";
  readonly phase: Phase;
  readonly waitingFor: string;
  /** The rollout passes the point after which traffic belongs to the new release. */
  readonly promotes?: boolean;
  /** When a pause ends. */
  readonly until?: number;
  readonly isDone?: boolean;
}

interface Because {
  /** A sentence for people. */
  readonly why: string;
}

export interface Plan {
  /** Instances to make. */
  readonly add: readonly (Because & { readonly release: number })[];
  /** Instances that are not wanted any more. They leave the table, and are removed when it is confirmed. */
  readonly retire: readonly (Because & { readonly id: string; readonly hasFailed: boolean })[];
  /** The new table of targets; null: it stays. */
  readonly route: (Because & { readonly ids: readonly string[] }) | null;
  /** Instances that nothing is sent to any more: they are stopped and removed. */
  readonly remove: readonly (Because & { readonly id: string })[];
  readonly promote: Because | null;
  /** To store; null: no rollout is under way. */
  readonly progress: Progress | null;
  readonly end: (Because & { readonly outcome: "succeeded" | "failed" }) | null;
  /** What has to happen next; null: the app is as it should be. */
  readonly waitingFor: string | null;
  /** When to plan again although nothing has happened; null: never. */
  readonly wakeAt: number | null;
}

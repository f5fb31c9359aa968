/**
 * What a room gives to the server: one record with its handlers and with what runs in the background for it.
 *
 * Each room that gives any of it has a file `family.ts`, whose function takes what its parts need and returns
 * the record. families.ts lists the records; assemble.ts hands their parts to the pipeline, the metrics, the
 * runner of operations and the driver of loops, which know no room.
 *
 * Always: a record only names its parts. Nothing of it runs before the server serves.
 */
import type { ErrorCode } from "@flotilla/contract/errors";
import type { OperationKind, OperationStatus, OperationStep } from "@flotilla/contract/operations";
import type { Handlers } from "./api/handler.ts";
import type { Context } from "./context.ts";
import type { Channel } from "./db/database.ts";

export interface Family {
  /** The room. */
  readonly name: string;
  /** A handler for each of its endpoints. */
  readonly handlers?: Partial<Handlers>;
  /** One for each kind of operation. */
  readonly workers?: readonly OperationWorker[];
  readonly loops?: readonly Reconciler[];
  /** Deletions of expired rows, by the name of their count in the log. */
  readonly purges?: Readonly<Record<string, Purge>>;
  readonly measures?: readonly Measure[];
  /**
   * Ends what it has begun, after the loops and operations have ended, and before the services that it uses.
   */
  stop?(): void | Promise<void>;
}

/** A loop that makes observed state match desired state. */
export interface Reconciler {
  readonly name: string;
  /** Shown in reconcilers/README.md. */
  readonly purpose: string;
  readonly periodMs: number;
  /** Channels whose notifications wake it; their payloads are not read. */
  readonly wakeOn: readonly Channel[];
  /** observe → plan → apply → report. It does not depend on what woke it. */
  activate(signal: AbortSignal): Promise<Report>;
}

/** What an activation did. Errors of single items are collected here, not thrown. */
export interface Report {
  readonly errors: readonly string[];
  /** Counts of items found and actions done, by name. */
  readonly counts: Readonly<Record<string, number>>;
  /** A limit was reached: the loop runs again immediately. */
  readonly hasMore?: boolean;
  /** It repaired what another process should have finished. */
  readonly isRepair?: boolean;
}

/** Deletes at most `max` expired rows, which it claims; resolves with their number. */
export type Purge = (context: Context, max: number) => Promise<number>;

/** A metric whose values are read when all are. */
export interface Measure {
  readonly kind: "gauge" | "counter";
  readonly name: string;
  readonly help: string;
  readonly labels: readonly string[];
  /** The last values stay when it rejects, as it does without the database. */
  readonly read: () => Measured | Promise<Measured>;
}

type Measured = readonly (readonly [labels: Readonly<Record<string, string>>, value: number])[];

export interface OperationWorker {
  readonly kind: OperationKind;
  /** The operation succeeds when it resolves. A Refusal's text is shown as the reason of the failure. */
  work(run: OperationRun): Promise<void>;
  /** Compensation, run before the operation is marked failed. May run twice. */
  undo?(operation: OperationRecord): Promise<void>;
}

/** What a worker is given. */
export interface OperationRun {
  readonly operation: OperationRecord;
  /** Aborted when the operation is canceled, is over its deadline or goes to another server. */
  readonly signal: AbortSignal;
  /**
   * Runs a step, unless it has succeeded before; `work` returns its message. Throws if it fails, or has
   * failed before. Steps may run in parallel.
   */
  step(name: string, work: (say: (message: string) => void) => Promise<string | StepResult>): Promise<void>;
}

/** The message of a step that has succeeded, and its figures. */
export type StepResult = StepFigures & { readonly message: string };

/** The figures of a step. */
export type StepFigures = Pick<
  OperationStep,
  "downtimeMs" | "reference" | "digest" | "sizeBytes" | "sentBytes" | "platforms"
>;

/** An operation. Instants are epoch milliseconds. */
export interface OperationRecord {
  readonly id: string;
  readonly tenantId: string;
  readonly kind: OperationKind;
  readonly status: OperationStatus;
  readonly resourceKind: string;
  readonly resourceId: string;
  readonly resourceName: string | null;
  readonly input: unknown;
  readonly steps: readonly OperationStep[];
  readonly error: string | null;
  /** That of the refusal for which it failed; null: it failed otherwise, or has not failed. */
  readonly errorCode: ErrorCode | null;
  readonly createdAt: number;
  readonly updatedAt: number;
  readonly deadlineAt: number;
  /** How often a server has claimed it. */
  readonly attempt: number;
  /** It ends as soon as its worker notices. */
  readonly isCancelRequested: boolean;
}

/**
 * What the server keeps of a node's report: a column for each field that a statement or a decision reads, and
 * one document for all others.
 *
 * Pure. So a field that a node begins to report is kept without a change here:
 * docs/adding-an-observed-field.md.
 */
import type { ObservedMachine } from "@flotilla/contract/link/link";
import { absentMachine } from "@flotilla/contract/link/absent";

/** Fields that have a column, and fields that observe.ts applies to other facts. */
const APPLIED = [
  "machineId",
  "generation",
  "state",
  "bootId",
  "runningSince",
  "readySince",
  "reason",
  "reasonCode",
  "hasPoweredOff",
  "lastRun",
] as const satisfies readonly (keyof ObservedMachine)[];

/** The document: every other field of the newest report that changed something. */
export type ObservedDetails = Omit<ObservedMachine, (typeof APPLIED)[number]>;

export function detailsOf(report: ObservedMachine): ObservedDetails {
  const details = Object.entries(report).filter(([name]) => !(APPLIED as readonly string[]).includes(name));
  // What is left after the fields of APPLIED have been taken out.
  return Object.fromEntries(details) as unknown as ObservedDetails;
}

const NO_DETAILS = detailsOf(absentMachine(`mach-${"0".repeat(32)}`, 0));

/** A stored document; a field that it lacks has its default. */
export const storedDetails = (stored: Partial<ObservedDetails>): ObservedDetails => ({ ...NO_DETAILS, ...stored });

/** No node has reported the machine. */
export const NOTHING_OBSERVED = {
  observedState: "absent",
  observedGeneration: 0,
  observedBootId: null,
  observedReason: null,
  observedReasonCode: null,
  observedDetails: NO_DETAILS,
  readyAt: null,
} as const;

/**
 * Fields whose change alone is not written, so that a boot costs the row one write: events report a start's
 * progress.
 */
const UNWRITTEN: Partial<ObservedDetails> = { progress: null, timings: null };

/** Whether a reader of the machine sees a difference. */
export function isSameForReaders(before: ObservedDetails, after: ObservedDetails): boolean {
  return JSON.stringify(sorted({ ...before, ...UNWRITTEN })) === JSON.stringify(sorted({ ...after, ...UNWRITTEN }));
}

/** PostgreSQL keeps the fields of a document in an order of its choice. */
const sorted = (details: ObservedDetails): [string, unknown][] =>
  Object.entries(details).toSorted(([a], [b]) => (a < b ? -1 : 1));

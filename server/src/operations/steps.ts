/**
 * The steps of an operation, as an immutable list. Pure.
 *
 * Always: a step that has ended does not change, so the next server to claim the operation neither repeats it
 * nor loses its result; a step that was running when its server died runs again, with its first `startedAt`.
 */
import type { OperationStep } from "@flotilla/contract/operations";
import type { StepFigures } from "../family.ts";

export type Steps = readonly OperationStep[];

interface StepEnd extends StepFigures {
  readonly status: "succeeded" | "failed";
  readonly message: string;
  readonly now: number;
}

const isOver = ({ status }: OperationStep): boolean => status === "succeeded" || status === "failed";

export const plannedStep = (name: string): OperationStep => ({
  name,
  status: "pending",
  startedAt: null,
  finishedAt: null,
  message: null,
});

export const findStep = (steps: Steps, name: string): OperationStep | undefined =>
  steps.find((step) => step.name === name);

/** A step that was not planned is added at the end. */
export function beginStep(steps: Steps, name: string, now: number): Steps {
  const known = findStep(steps, name) === undefined ? [...steps, plannedStep(name)] : steps;
  return change(known, name, (step) => ({
    ...step,
    status: "running",
    startedAt: step.startedAt ?? new Date(now).toISOString(),
  }));
}

export const setStepMessage = (steps: Steps, name: string, message: string): Steps =>
  change(steps, name, (step) => ({ ...step, message }));

export const endStep = (steps: Steps, name: string, { now, ...end }: StepEnd): Steps =>
  change(steps, name, (step) => ({ ...step, ...end, finishedAt: new Date(now).toISOString() }));

/** The operation ends: steps that are still running have failed for this reason. */
export const failRunning = (steps: Steps, message: string, now: number): Steps =>
  steps.map((step) =>
    step.status === "running" ? { ...step, status: "failed", finishedAt: new Date(now).toISOString(), message } : step,
  );

const change = (steps: Steps, name: string, how: (step: OperationStep) => OperationStep): Steps =>
  steps.map((step) => (step.name === name && !isOver(step) ? how(step) : step));

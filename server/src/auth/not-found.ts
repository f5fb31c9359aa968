/**
 * The answer about a machine that the caller does not see. Pure.
 *
 * Always: it is the same for a machine that never was, one that was deleted, and another tenant's.
 */
import { Refusal } from "@flotilla/contract/errors";

export const machineNotFound = (id: string): Refusal =>
  new Refusal(
    "not_found",
    `machine ${id} was not found; name the machine by its id; a deleted machine cannot be restored`,
    { resource: { kind: "machine", id } },
  );

/**
 * The answer about a node that is not in the cluster. Pure.
 */
import { Refusal } from "@flotilla/contract/errors";

export const nodeNotFound = (id: string): Refusal =>
  new Refusal("not_found", `node ${id} was not found; GET /v1/nodes lists them`);

/**
 * Checks an image reference: its syntax, and that the operator allows its registry.
 *
 * The check gives callers an early refusal. The node that connects to a registry checks again with its own
 * list. Pure.
 */
import { ownMessageOf } from "@flotilla/base/errors";
import { Refusal } from "@flotilla/contract/errors";
import { parseReference } from "@flotilla/contract/reference";
import { type RegistryList, registryRefusal } from "@flotilla/contract/registries";

/** Throws a Refusal that says why not. */
export function checkReference(registries: RegistryList, text: string): void {
  const { registry, isLocal } = parsed(text);
  if (!isLocal && registries.grant(registry) === null) throw new Refusal("invalid_request", registryRefusal(registry));
}

function parsed(text: string): ReturnType<typeof parseReference> {
  try {
    return parseReference(text);
  } catch (error) {
    throw new Refusal("invalid_request", ownMessageOf(error));
  }
}

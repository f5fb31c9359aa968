/**
 * Whether an image reference may be used here: well formed, and of a registry that the operator allows.
 *
 * Early and for the caller's sake: the node that connects to registries decides with a list of its own. Pure.
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

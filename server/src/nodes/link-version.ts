/**
 * Refuses a node whose version of the link does not work with this server's.
 */
import { Refusal } from "@flotilla/contract/errors";
import { type LinkVersions, OWN_LINK_VERSIONS, versionRefusal } from "@flotilla/contract/link/version";

/** Throws a Refusal that names both versions and the program to upgrade. */
export function checkLinkVersions(nodeId: string, versions: LinkVersions): void {
  const server = { name: "this server", versions: OWN_LINK_VERSIONS };
  const refusal = versionRefusal(server, { name: `node ${nodeId}`, versions });
  if (refusal !== null) throw new Refusal("link_version", refusal);
}

/**
 * The version of the link, and who works with whom.
 *
 * The version grows once per release, and only when the other side must know of a change: a route or a
 * message that it must have, or a changed meaning. A field with a default needs no new version
 * (vocabulary.ts).
 *
 * Always: a version works with the one before it, so that servers and nodes are upgraded one after the other,
 * in any order. Each side names its versions and refuses the other side's when they do not meet; no message
 * says which of them applies, because a reader drops what it does not know. A side that names none has
 * version 1.
 *
 * contract/vectors/link-v1.json has messages of version 1, which server/test/link-versions.test.ts plays. A
 * release with a new version adds its vectors, and keeps those of its LINK_VERSION_LOWEST.
 */
import { InvalidMessage } from "./read.ts";

export const LINK_VERSION = 1;
/** The oldest version of the other side that this one works with. */
export const LINK_VERSION_LOWEST = 1;

/**
 * A request of the server names its versions in this header, as `1-3`. Nodes name theirs in their reports.
 */
export const LINK_HEADER = "flotilla-link";

export interface LinkVersions {
  readonly version: number;
  readonly lowest: number;
}

export const OWN_LINK_VERSIONS: LinkVersions = { version: LINK_VERSION, lowest: LINK_VERSION_LOWEST };
const UNNAMED: LinkVersions = { version: 1, lowest: 1 };

export const linkHeader = ({ version, lowest }: LinkVersions): string => `${lowest}-${version}`;

/** Reads LINK_HEADER. Throws InvalidMessage. */
export function linkVersionsOf(header: string | readonly string[] | undefined): LinkVersions {
  if (header === undefined) return UNNAMED;
  const [, lowest, version] = /^(\d{1,6})-(\d{1,6})$/.exec(String(header)) ?? [];
  if (version === undefined) throw new InvalidMessage(LINK_HEADER, "two versions such as 1-2");
  return { version: Number(version), lowest: Number(lowest) };
}

export interface VersionedSide {
  /** Such as `node node-a`. */
  readonly name: string;
  readonly versions: LinkVersions;
}

/** Why two sides do not work together, and what to do; null when they do. */
export function versionRefusal(a: VersionedSide, b: VersionedSide): string | null {
  const [newer, older] = a.versions.version >= b.versions.version ? [a, b] : [b, a];
  if (older.versions.version >= newer.versions.lowest) return null;
  const { version, lowest } = newer.versions;
  return (
    `${newer.name} has version ${version} of the link between server and nodes and works with version ${lowest} and later, ` +
    `and ${older.name} has version ${older.versions.version}: upgrade ${older.name}, one release at a time`
  );
}

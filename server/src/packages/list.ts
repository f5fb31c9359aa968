/**
 * Packages as users see them: tags of one manifest are one package. Pure.
 */
import type { PackageInfo } from "@flotilla/contract/packages";
import { diskGbOf } from "../machines/from-package.ts";
import type { FoundTag } from "../registry/registry.ts";

/** `tags`: by repository, the newest first. */
export function packagesOf(tags: readonly FoundTag[]): PackageInfo[] {
  const packages = Map.groupBy(tags, ({ repository, digest }) => `${repository} ${digest}`);
  return [...packages.values()].flatMap((of) => {
    const [newest] = of;
    if (newest === undefined) return [];
    const { repository, tag, digest, bytes, facts, createdAt, updatedAt } = newest;
    return [
      {
        ...{ reference: `${repository}:${tag}`, digest, tags: of.map((each) => each.tag), sizeBytes: bytes },
        diskGb: facts === null ? null : diskGbOf(facts.diskBytes),
        architecture: facts?.architecture ?? null,
        image: facts?.imageReference ?? null,
        imageDigest: facts?.imageDigest ?? null,
        machineId: facts?.machineId ?? null,
        createdAt: new Date(createdAt).toISOString(),
        updatedAt: new Date(updatedAt).toISOString(),
      },
    ];
  });
}

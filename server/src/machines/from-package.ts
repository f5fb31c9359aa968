/**
 * What a machine is made from: an image, or a package, whose tag means the digest that it has at the create.
 *
 * Always: what can never start is refused here, with nothing left: a package that the tenant may not read or
 * that is not there, one of other processors than any node has, one whose disk is larger than the machine's.
 * Of a package in another registry nothing is known until a node has pulled it.
 */
import { ownMessageOf } from "@flotilla/base/errors";
import { Refusal } from "@flotilla/contract/errors";
import type { CreateMachineRequest, MachineSource } from "@flotilla/contract/machines";
import { OWN_REGISTRY, parsePackageReference } from "@flotilla/contract/reference";
import { packageNotFound, packageOf } from "../registry/package-name.ts";
import type { FoundManifest } from "../registry/registry.ts";
import { checkReference } from "./image-reference.ts";
import type { StoredSource } from "./record.ts";
import type { MachineServices } from "./services.ts";

export interface MadeFrom {
  readonly source: StoredSource;
  /** null: it says nothing of the disk. */
  readonly diskGb: number | null;
}

type SourceServices = Pick<MachineServices, "nodes" | "registries" | "registry">;

/** What a machine is made from. Throws a Refusal when the tenant may not, or it is not there. */
export async function madeFrom(
  services: SourceServices,
  { source, resources }: Pick<CreateMachineRequest, "source" | "resources">,
  tenantId: string,
): Promise<MadeFrom> {
  const { type, reference } = source;
  const arch = source.arch ?? null;
  if (type === "smolmachine")
    return await fromPackage(services, { reference, arch, diskGb: resources?.diskGb ?? null, tenantId });
  checkReference(services.registries, reference);
  return { source: { type, reference, ...(arch === null ? {} : { arch }) }, diskGb: null };
}

interface PackageWanted {
  readonly reference: string;
  readonly arch: NonNullable<MachineSource["arch"]> | null;
  /** What was asked for; null: nothing. */
  readonly diskGb: number | null;
  readonly tenantId: string;
}

const BYTES_PER_GB = 1024 ** 3;

/** The smallest disk in GB that has room for a package's. */
export const diskGbOf = (diskBytes: number): number => Math.max(1, Math.ceil(diskBytes / BYTES_PER_GB));

async function fromPackage(services: SourceServices, wanted: PackageWanted): Promise<MadeFrom> {
  const { reference, arch, diskGb, tenantId } = wanted;
  const type = "smolmachine" as const;
  const foreign = foreignOf(reference, tenantId);
  if (foreign !== null) {
    checkReference(services.registries, foreign);
    const source = { type, reference, pulledAs: foreign, ...(arch === null ? {} : { arch }) };
    return { source, diskGb };
  }
  const { repository, target } = packageOf(reference, tenantId, "source.reference");
  const found = await services.registry.find({ repository, target });
  if (found === null) throw packageNotFound(reference);
  const facts = machineFacts(reference, found);
  if (arch !== null && arch !== facts.architecture)
    throw refused(`package ${reference} is for ${facts.architecture}, and not for ${arch}`, "source.arch");
  const there = await services.nodes.architectures();
  if (there.size > 0 && !there.has(facts.architecture))
    throw new Refusal(
      "image_wrong_platform",
      `package ${reference} is for ${facts.architecture}, and the nodes here run ${[...there].join(" and ")}`,
    );
  const needed = diskGbOf(facts.diskBytes);
  if (diskGb !== null && diskGb < needed)
    throw refused(
      `package ${reference} has a disk of ${needed} GB, and ${diskGb} GB were asked for; ask for more, or leave it out`,
      "resources.diskGb",
    );
  const pulledAs = `${OWN_REGISTRY}/${repository}@${found.digest}`;
  return { source: { type, reference, arch: facts.architecture, pulledAs }, diskGb: diskGb ?? needed };
}

const refused = (text: string, field: string): Refusal => new Refusal("invalid_request", text, { field });

/** Its canonical name, if it is of another registry. Throws a Refusal when it is not a reference. */
function foreignOf(reference: string, tenantId: string): string | null {
  try {
    const parsed = parsePackageReference(reference, tenantId);
    return parsed.kind === "foreign" ? parsed.reference.name : null;
  } catch (error) {
    throw refused(ownMessageOf(error), "source.reference");
  }
}

interface MachineFacts {
  readonly diskBytes: number;
  readonly architecture: "amd64" | "arm64";
}

/** What the machine whose disk it is has. Throws a Refusal when it is something else. */
function machineFacts(reference: string, { facts, artifactType, mediaType }: FoundManifest): MachineFacts {
  if (facts === null)
    throw refused(`package ${reference} is not a machine's disk: ${otherwise(artifactType, mediaType)}`, "source");
  const { architecture, diskBytes } = facts;
  if (architecture === "amd64" || architecture === "arm64") return { diskBytes, architecture };
  throw new Refusal(
    "image_wrong_platform",
    `package ${reference} is for ${architecture.slice(0, 50)}, which no node runs`,
  );
}

function otherwise(artifactType: string | null, mediaType: string): string {
  if (artifactType?.startsWith("application/vnd.smolmachines.") === true)
    return "it is a packed machine of smolvm, which holds the parts of a container and not a disk; use its image";
  if (/index|manifest\.list/.test(mediaType)) return "it is an index of several; name one of them by its digest";
  return `it is ${artifactType ?? "an image"}; use a source of type image with the registry's address`;
}

/**
 * The manifest and the config of a package: an OCI image whose layers are parts of a machine's disk.
 *
 * Pure. Always: the same disk and the same configuration give the same bytes, because nothing in them is a
 * time or the name of a node. What is parsed is untrusted.
 */
import { DISK_GB_MAX } from "@flotilla/contract/limits";
import { DISK_BLOCK_BYTES } from "./disk-records.ts";
import type { ImageConfiguration } from "./images.ts";

export const PACKAGE_TYPE = "application/vnd.flotilla.machine.v1";
export const PACKAGE_LAYER_TYPE = "application/vnd.flotilla.disk.v1+zstd";
const MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json";
const CONFIG_TYPE = "application/vnd.oci.image.config.v1+json";
/** Packages of another program of the same purpose, by its types. */
const OTHER_PROGRAM = /^application\/vnd\.smolmachines\./;

const ANNOTATIONS = {
  diskBytes: "dev.flotilla.disk-bytes",
  usedBytes: "dev.flotilla.used-bytes",
  architecture: "dev.flotilla.architecture",
  image: "dev.flotilla.image",
  imageDigest: "dev.flotilla.image-digest",
  machine: "dev.flotilla.machine",
} as const;

const DISK_BYTES_MAX = DISK_GB_MAX * 2 ** 30;

/** What a manifest says of the disk. */
export interface PackagedDisk {
  /** Its size; a multiple of a block. */
  readonly diskBytes: number;
  /** Its blocks that are not zeros; null: the manifest does not say. */
  readonly usedBytes: number | null;
}

export interface PackageLayer {
  /** The digest of the layer as it is stored. */
  readonly digest: string;
  readonly size: number;
  /** The digest of its records. */
  readonly diffId: string;
}

export interface PackageFacts {
  readonly diskBytes: number;
  readonly usedBytes: number;
  readonly architecture: string;
  readonly machineId: string;
  /** What the machine was made from. */
  readonly image: { readonly reference: string; readonly digest: string | null } | null;
}

export interface PackageSettings {
  readonly configuration: ImageConfiguration;
  readonly ports: readonly number[];
  readonly labels: Readonly<Record<string, string>>;
}

export function renderPackageConfig(
  { architecture }: Pick<PackageFacts, "architecture">,
  { configuration, ports, labels }: PackageSettings,
  layers: readonly PackageLayer[],
): Buffer {
  const { env, workdir, user, entrypoint, command } = configuration;
  const exposed = ports.toSorted((a, b) => a - b).map((port): [string, object] => [`${port}/tcp`, {}]);
  const labelled = Object.entries(labels).toSorted(([a], [b]) => (a < b ? -1 : 1));
  return Buffer.from(
    JSON.stringify({
      architecture,
      os: "linux",
      config: {
        ...{ Env: env, WorkingDir: workdir, User: user, Entrypoint: entrypoint, Cmd: command },
        ...(exposed.length > 0 && { ExposedPorts: Object.fromEntries(exposed) }),
        ...(labelled.length > 0 && { Labels: Object.fromEntries(labelled) }),
      },
      rootfs: { type: "layers", diff_ids: layers.map(({ diffId }) => diffId) },
    }),
  );
}

export function renderPackageManifest(
  facts: PackageFacts,
  config: { readonly digest: string; readonly size: number },
  layers: readonly PackageLayer[],
): Buffer {
  const { image } = facts;
  return Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: MANIFEST_TYPE,
      artifactType: PACKAGE_TYPE,
      config: { mediaType: CONFIG_TYPE, digest: config.digest, size: config.size },
      layers: layers.map(({ digest, size }) => ({ mediaType: PACKAGE_LAYER_TYPE, digest, size })),
      annotations: {
        [ANNOTATIONS.diskBytes]: String(facts.diskBytes),
        [ANNOTATIONS.usedBytes]: String(facts.usedBytes),
        [ANNOTATIONS.architecture]: facts.architecture,
        ...(image !== null && { [ANNOTATIONS.image]: image.reference }),
        ...(image !== null && image.digest !== null && { [ANNOTATIONS.imageDigest]: image.digest }),
        [ANNOTATIONS.machine]: facts.machineId,
      },
    }),
  );
}

/**
 * The disk of a manifest that is a package's; null: it is another kind of manifest. Throws an Error with a
 * user-facing message when it is a package that no node of Flotilla boots.
 */
export function parsePackagedDisk(manifest: Readonly<Record<string, unknown>>): PackagedDisk | null {
  const config = manifest["config"] as { readonly mediaType?: unknown } | null | undefined;
  for (const type of [manifest["artifactType"], config?.mediaType])
    if (typeof type === "string" && OTHER_PROGRAM.test(type))
      throw new Error(
        "it is a .smolmachine of another program, which holds files for that program's own virtual machines, " +
          "and no disk that Flotilla boots: export the machine with `flotilla machine export`, or use its container image",
      );
  if (manifest["artifactType"] !== PACKAGE_TYPE) return null;
  const annotations = manifest["annotations"];
  if (typeof annotations !== "object" || annotations === null) throw new Error("its manifest has no annotations");
  const values = annotations as Readonly<Record<string, unknown>>;
  const diskBytes = bytesIn(values[ANNOTATIONS.diskBytes]);
  if (diskBytes === null || diskBytes === 0 || diskBytes > DISK_BYTES_MAX || diskBytes % DISK_BLOCK_BYTES !== 0)
    throw new Error(`its manifest names no size of a disk in ${ANNOTATIONS.diskBytes}`);
  const usedBytes = bytesIn(values[ANNOTATIONS.usedBytes]);
  return { diskBytes, usedBytes: usedBytes === null ? null : Math.min(usedBytes, diskBytes) };
}

function bytesIn(value: unknown): number | null {
  return typeof value === "string" && /^\d{1,15}$/.test(value) ? Number(value) : null;
}

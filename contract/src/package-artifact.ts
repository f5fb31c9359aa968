/**
 * What a machine's disk is in a registry: an OCI image manifest with these types and annotations.
 *
 * The node writes and reads it; the server reads the annotations, to list packages and to check what is made
 * of them.
 */

/** `artifactType` of the manifest. */
export const MACHINE_ARTIFACT_TYPE = "application/vnd.flotilla.machine.v1";
/** Annotations of the manifest. All values are texts. */
export const PACKAGE_ANNOTATIONS = {
  /** Size of the disk in bytes. */
  diskBytes: "dev.flotilla.disk-bytes",
  /** As a node names its own: `amd64`. */
  architecture: "dev.flotilla.architecture",
  /** The image of which the machine was made; absent: none. */
  imageReference: "dev.flotilla.image",
  imageDigest: "dev.flotilla.image-digest",
  machineId: "dev.flotilla.machine",
} as const;

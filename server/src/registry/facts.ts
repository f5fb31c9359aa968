/**
 * What a manifest says about the machine whose disk it is. Pure.
 *
 * Always: texts are bounded, and what a client put is only shown or compared, never trusted to be true.
 */
import { MACHINE_ARTIFACT_TYPE, PACKAGE_ANNOTATIONS } from "@flotilla/contract/package-artifact";

/** A machine's disk, as the annotations of its manifest say. */
export interface PackageFacts {
  readonly diskBytes: number;
  readonly architecture: string;
  /** null: it names no image. */
  readonly imageReference: string | null;
  readonly imageDigest: string | null;
  readonly machineId: string | null;
}

const TEXT_CHARACTERS_MAX = 512;

/** null: it is not a machine's disk, or lacks what is needed to start one. */
export function factsOf(artifactType: string | null, annotations: unknown): PackageFacts | null {
  if (artifactType !== MACHINE_ARTIFACT_TYPE || typeof annotations !== "object" || annotations === null) return null;
  const text = (name: keyof typeof PACKAGE_ANNOTATIONS): string | null => {
    const value: unknown = (annotations as Record<string, unknown>)[PACKAGE_ANNOTATIONS[name]];
    // PostgreSQL stores no zero character.
    const isText = typeof value === "string" && value.length <= TEXT_CHARACTERS_MAX && !value.includes("\0");
    return isText && value !== "" ? value : null;
  };
  const [digits, architecture] = [text("diskBytes"), text("architecture")];
  const diskBytes = /^[1-9]\d{0,15}$/.test(digits ?? "") ? Number(digits) : Number.NaN;
  if (!Number.isSafeInteger(diskBytes) || architecture === null) return null;
  return {
    ...{ diskBytes, architecture },
    imageReference: text("imageReference"),
    imageDigest: text("imageDigest"),
    machineId: text("machineId"),
  };
}

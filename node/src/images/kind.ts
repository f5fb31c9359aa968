/**
 * Whether an image on a node is a container image or a package of a machine, and refusals of the other kind.
 */
import { OWN_REGISTRY, type Reference } from "@flotilla/contract/reference";
import { ImageRefused } from "./image-refused.ts";
import type { UnpackedImage } from "./images.ts";

/** Throws ImageRefused with what to use. `reference`: what the text is to name. */
export function checkKind(isPackage: boolean, isToBePackage: boolean, reference?: Reference): void {
  if (isPackage === isToBePackage) return;
  const what = reference === undefined ? "it" : shownName(reference);
  const text = isPackage
    ? `${what} is a package of a machine, not a container image: name it as source {"type": "smolmachine", "reference": …}`
    : `${what} is a container image, not a package of a machine: name it as image`;
  throw new ImageRefused("image_refused", text);
}

/** The disk of a machine must hold the whole disk of its package. */
export function diskTooSmall({ reference, rootBytes }: UnpackedImage): ImageRefused {
  const gigabytes = Math.ceil(rootBytes / 2 ** 30);
  const text = `the disk of package ${shortened(reference)} has ${gigabytes} GB: ask for diskGb of at least ${gigabytes}`;
  return new ImageRefused("image_refused", text);
}

/** `image docker.io/library/alpine:latest`; what the fleet's own registry has is without the registry. */
export function shownName({ name, registry }: Pick<Reference, "name" | "registry">): string {
  return registry === OWN_REGISTRY ? `package ${shortened(name)}` : `image ${name}`;
}

const shortened = (name: string): string =>
  name.startsWith(`${OWN_REGISTRY}/`) ? name.slice(OWN_REGISTRY.length + 1) : name;

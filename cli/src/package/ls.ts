/**
 * `flotilla package ls`: the tenant's packages, and those of the library.
 */
import { renderSpan } from "@flotilla/base/span";
import type { Call } from "../call.ts";
import { renderBytes } from "../table.ts";

export async function run(call: Call): Promise<void> {
  const flotilla = call.flotilla();
  const [packages, { registryNamespace }] = await Promise.all([flotilla.listPackages(), flotilla.getCaller()]);
  if (call.output.isJson) return call.output.json(packages);
  if (packages.length === 0) return call.output.note("no packages yet; `flotilla machine export` makes one");
  const now = call.world.clock.now();
  const own = `${registryNamespace}/`;
  call.output.table(
    ["PACKAGE", "TAGS", "SIZE", "DISK", "ARCH", "MADE FROM", "AGE", "DIGEST"],
    packages.map(({ reference, tags, sizeBytes, diskGb, architecture, image, updatedAt, digest }) => [
      nameOf(reference.startsWith(own) ? reference.slice(own.length) : reference),
      tags.join(" "),
      renderBytes(sizeBytes),
      diskGb === null ? "" : `${diskGb} GB`,
      architecture ?? "",
      image ?? "",
      renderSpan(Math.max(0, now - Date.parse(updatedAt))),
      digest.slice(0, 19),
    ]),
  );
}

/** Without its tag. */
const nameOf = (reference: string): string => reference.slice(0, reference.lastIndexOf(":"));

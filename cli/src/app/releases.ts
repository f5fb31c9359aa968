/**
 * `flotilla app releases APP`: the releases, newest first, and what became of each.
 */
import { renderSpan } from "@flotilla/base/span";
import type { Call } from "../call.ts";

export async function run(call: Call, [name = ""]: readonly string[]): Promise<void> {
  const releases = await call.flotilla().listReleases(name);
  if (call.output.isJson) return call.output.json(releases);
  const now = call.world.clock.now();
  call.output.table(
    ["RELEASE", "IMAGE", "DIGEST", "AGE", "OUTCOME", "WHY"],
    releases.map(({ number, image, digest, createdAt, outcome, outcomeReason, isCurrent, why }) => [
      String(number),
      image,
      digest.slice(0, 19),
      renderSpan(now - Date.parse(createdAt)),
      `${outcome ?? "under way"}${isCurrent ? ", serves" : ""}${outcomeReason === null ? "" : `: ${outcomeReason}`}`,
      why,
    ]),
  );
}

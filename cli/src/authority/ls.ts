/**
 * `flotilla authority ls`: the authorities that servers and nodes trust, the one that signs first.
 */
import { renderSpan } from "@flotilla/base/span";
import type { Call } from "../call.ts";

export async function run(call: Call): Promise<void> {
  const authorities = await call.flotilla().listFleetAuthorities();
  if (call.output.isJson) return call.output.json(authorities);
  const now = call.world.clock.now();
  call.output.table(
    ["FINGERPRINT", "SIGNS", "CREATED", "EXPIRES"],
    authorities.map(({ fingerprint, isSigning, createdAt, expiresAt }) => [
      fingerprint,
      isSigning ? "yes" : "no",
      `${renderSpan(now - Date.parse(createdAt))} ago`,
      `in ${renderSpan(Date.parse(expiresAt) - now)}`,
    ]),
  );
}

/**
 * `flotilla token ls`: the join tokens, without their secrets. Expired and used-up ones are listed until they
 * are removed.
 */
import { renderSpan } from "@flotilla/base/span";
import type { Call } from "../call.ts";

export async function run(call: Call): Promise<void> {
  const tokens = await call.flotilla().listJoinTokens();
  if (call.output.isJson) return call.output.json(tokens);
  const now = call.world.clock.now();
  call.output.table(
    ["PREFIX", "USES", "CREATED", "EXPIRES", "DESCRIPTION"],
    tokens.map(({ prefix, uses, maxUses, createdAt, expiresAt, description }) => {
      const leftMs = Date.parse(expiresAt) - now;
      return [
        prefix,
        `${uses} of ${maxUses}`,
        `${renderSpan(now - Date.parse(createdAt))} ago`,
        leftMs <= 0 ? "has expired" : `in ${renderSpan(leftMs)}`,
        description ?? "",
      ];
    }),
  );
}

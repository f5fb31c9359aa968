/**
 * `flotilla key ls`: the tenant's API keys, without their secrets.
 *
 * An expired key is listed, marked as expired, until it is revoked.
 */
import { renderSpan } from "@flotilla/base/span";
import type { ApiKeyInfo } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { queryOfTenant } from "../find-by-name.ts";

export interface ListKeysOptions {
  readonly tenant?: string;
}

export async function run(call: Call, _operands: readonly string[], { tenant }: ListKeysOptions): Promise<void> {
  const flotilla = call.flotilla();
  const keys = await flotilla.listApiKeys({ query: await queryOfTenant(flotilla, tenant) });
  if (call.output.isJson) return call.output.json(keys);
  const now = call.world.clock.now();
  call.output.table(
    ["ID", "SCOPES", "CREATED", "EXPIRES", "LAST USED", "DESCRIPTION"],
    keys.map((key) => [
      key.id,
      key.scopes.join(" ") || "none",
      `${renderSpan(now - Date.parse(key.createdAt))} ago`,
      expiry(key, now),
      key.lastUsedAt === null ? "never" : `${renderSpan(now - Date.parse(key.lastUsedAt))} ago`,
      key.description ?? "",
    ]),
  );
}

function expiry({ expiresAt }: ApiKeyInfo, now: number): string {
  if (expiresAt === null) return "never";
  const leftMs = Date.parse(expiresAt) - now;
  return leftMs <= 0 ? "has expired" : `in ${renderSpan(leftMs)}`;
}

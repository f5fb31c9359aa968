/**
 * `flotilla operation ls`: the tenant's operations of the last 30 days, newest first.
 */
import { renderSpan } from "@flotilla/base/span";
import type { Call } from "../call.ts";
import { clean } from "../table.ts";

export async function run(call: Call, _operands: readonly string[], options: { readonly limit?: number }) {
  const query = options.limit === undefined ? {} : { limit: options.limit };
  const operations = await call.flotilla().listOperations({ query });
  if (call.output.isJson) return call.output.json(operations);
  const now = call.world.clock.now();
  call.output.table(
    ["ID", "WHAT", "STATUS", "ASKED FOR", "NOTE"],
    operations.map(({ id, kind, resource, status, createdAt, error, steps }) => [
      id,
      `${kind} of ${resource.name ?? resource.id}`,
      status,
      `${renderSpan(now - Date.parse(createdAt))} ago`,
      clean(error ?? steps.findLast((step) => step.message !== null)?.message ?? ""),
    ]),
  );
}

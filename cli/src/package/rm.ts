/**
 * `flotilla package rm REFERENCE…`: deletes tags, or packages by their digest.
 */
import type { Call } from "../call.ts";

export async function run(call: Call, references: readonly string[]): Promise<void> {
  const flotilla = call.flotilla();
  for (const reference of references) {
    await flotilla.deletePackage({ query: { reference } });
    if (!call.output.isJson) call.output.line(reference);
  }
  if (call.output.isJson) call.output.json(references);
}

/**
 * `flotilla operation cancel ID`: ends an operation early. It is `canceled` within seconds, unless it has
 * finished by then.
 */
import type { Call } from "../call.ts";

export async function run(call: Call, [id = ""]: readonly string[]): Promise<void> {
  const operation = await call.flotilla().cancelOperation(id);
  if (call.output.isJson) call.output.json(operation);
  else call.output.line(operation.id);
}

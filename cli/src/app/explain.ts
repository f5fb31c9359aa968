/**
 * `flotilla app explain APP`: why an app and each of its instances is as it is, and what would be done next.
 */
import type { Call } from "../call.ts";

export async function run(call: Call, [name = ""]: readonly string[]): Promise<void> {
  const { output } = call;
  const explanation = await call.flotilla().explainApp(name);
  if (output.isJson) return output.json(explanation);
  const { status, waitingFor, next, instances, failures, retryAt, lastFailure } = explanation;
  output.line(`${name} is ${status}`);
  if (waitingFor !== null) output.line(`it waits: ${waitingFor}`);
  if (lastFailure !== null) output.line(`${failures} of its instances failed in a row; the last: ${lastFailure}`);
  if (retryAt !== null) output.line(`no instance is made before ${retryAt}, because others failed`);
  for (const sentence of next) output.line(`next: ${sentence}`);
  for (const { id, sentence } of instances) output.line(`${id}: ${sentence}`);
}

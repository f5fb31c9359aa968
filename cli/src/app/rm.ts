/**
 * `flotilla app rm APP…`: destroys apps and their instances.
 */
import type { Call } from "../call.ts";

export async function run(call: Call, names: readonly string[]): Promise<void> {
  for (const name of names) {
    await call.flotilla().destroyApp(name);
    call.output.line(name);
  }
}

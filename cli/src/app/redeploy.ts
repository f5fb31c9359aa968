/**
 * `flotilla app redeploy APP`: asks the registry for the image again, and replaces all instances.
 */
import type { Call } from "../call.ts";
import { endChange, type WaitOptions } from "./wait.ts";

export async function run(call: Call, [name = ""]: readonly string[], options: WaitOptions): Promise<number | void> {
  return await endChange(call, await call.flotilla().redeployApp(name), options);
}

/**
 * `flotilla app promote APP`: lets the canaries of an app replace its other instances.
 */
import type { Call } from "../call.ts";
import { endChange, type WaitOptions } from "./wait.ts";

export async function run(call: Call, [name = ""]: readonly string[], options: WaitOptions): Promise<number | void> {
  return await endChange(call, await call.flotilla().promoteApp(name), options);
}

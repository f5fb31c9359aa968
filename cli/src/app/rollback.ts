/**
 * `flotilla app rollback APP`: deploys an earlier release again, as a new one.
 */
import type { Call } from "../call.ts";
import { endChange, type WaitOptions } from "./wait.ts";

export async function run(
  call: Call,
  [name = ""]: readonly string[],
  { release, ...options }: WaitOptions & { readonly release?: number },
): Promise<number | void> {
  const which = release === undefined ? {} : { release };
  return await endChange(call, await call.flotilla().rollbackApp(name, which), options);
}

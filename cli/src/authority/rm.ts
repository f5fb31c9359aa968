/**
 * `flotilla authority rm FINGERPRINT`: ends the trust in an authority that no longer signs.
 */
import type { Call } from "../call.ts";

export async function run(call: Call, [fingerprint = ""]: readonly string[]): Promise<void> {
  await call.flotilla().removeFleetAuthority(fingerprint);
  call.output.line(fingerprint);
}

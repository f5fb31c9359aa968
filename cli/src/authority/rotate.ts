/**
 * `flotilla authority rotate`: makes a new authority sign the certificates of nodes.
 */
import type { Call } from "../call.ts";

export async function run(call: Call): Promise<void> {
  const authorities = await call.flotilla().rotateFleetAuthority();
  if (call.output.isJson) return call.output.json(authorities);
  const [signing, ...earlier] = authorities;
  call.output.line(signing?.fingerprint ?? "");
  for (const { fingerprint } of earlier)
    call.output.note(`still trusted, until all nodes have reported and you run: flotilla authority rm ${fingerprint}`);
}

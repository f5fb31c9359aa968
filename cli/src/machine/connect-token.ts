/**
 * `flotilla machine connect-token NAME`: a token that opens the published ports of one machine for a limited
 * time, for programs that should not have a key. Standard output has only the token.
 */
import type { Call } from "../call.ts";
import { findMachineId } from "./find.ts";

export interface ConnectTokenOptions {
  readonly ttl?: number;
}

export async function run(
  call: Call,
  [reference = ""]: readonly string[],
  options: ConnectTokenOptions,
): Promise<void> {
  const flotilla = call.flotilla();
  const id = await findMachineId(flotilla, reference);
  const made = await flotilla.createConnectToken(id, options.ttl === undefined ? {} : { ttlSeconds: options.ttl });
  if (call.output.isJson) return call.output.json(made);
  call.output.line(made.token);
  if (call.output.isWatched)
    call.output.note(`valid until ${made.expiresAt}, as a bearer token at ${flotilla.endpoint(id)}/PORT/`);
}

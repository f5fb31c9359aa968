/**
 * `flotilla token create`: makes a join token and prints it; it is shown only once.
 *
 * Standard output has only the token, so that it can be redirected to a file. A warning follows if no server
 * listens for nodes on other hosts, because none could use the token.
 */
import { renderSpan } from "@flotilla/base/span";
import type { Call } from "../call.ts";

export interface CreateTokenOptions {
  readonly description?: string;
  readonly expiresIn?: number;
  readonly uses?: number;
  readonly label?: Readonly<Record<string, string>>;
}

const NO_LISTENER =
  "warning: no server listens for nodes on other hosts, so none can join with it; start the servers with --node-listen 0.0.0.0:8443 (FLOTILLA_NODE_LISTEN)";

export async function run(call: Call, _operands: readonly string[], options: CreateTokenOptions): Promise<void> {
  const { description, expiresIn, uses, label } = options;
  const created = await call.flotilla().createJoinToken({
    ...(description === undefined ? {} : { description }),
    ...(expiresIn === undefined ? {} : { expiresInSeconds: expiresIn }),
    ...(uses === undefined ? {} : { maxUses: uses }),
    ...(label === undefined ? {} : { labels: { ...label } }),
  });
  if (call.output.isJson) return call.output.json(created);
  call.output.line(created.token);
  const left = renderSpan(Date.parse(created.expiresAt) - call.world.clock.now());
  const [address = "ADDRESS"] = created.nodeAddresses;
  call.output.note(
    `save it now, it is not shown again; for ${left}, on the other host: FLOTILLA_URL=https://${address} FLOTILLA_JOIN_TOKEN=… flotilla node`,
  );
  if (created.nodeAddresses.length === 0) call.output.note(NO_LISTENER);
}

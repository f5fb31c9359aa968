/**
 * `flotilla token create`: makes a join token and prints it; it is shown only once.
 *
 * Standard output has only the token, so that it can be redirected to a file.
 */
import type { Call } from "../call.ts";
import { renderSpan } from "../table.ts";

export interface CreateTokenOptions {
  readonly description?: string;
  readonly expiresIn?: number;
  readonly uses?: number;
  readonly label?: Readonly<Record<string, string>>;
}

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
  call.output.note(
    `save it now, it is not shown again; for ${left}, on the other host: FLOTILLA_URL=https://ADDRESS FLOTILLA_JOIN_TOKEN=… flotilla node`,
  );
}

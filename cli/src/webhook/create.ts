/**
 * `flotilla webhook create ADDRESS`: makes a webhook and prints its secret; it is shown only once.
 *
 * Standard output has only the secret, so that it can be redirected to a file.
 */
import type { Call } from "../call.ts";

export interface CreateWebhookOptions {
  readonly description?: string;
  readonly type?: readonly string[];
}

export async function run(call: Call, [url = ""]: readonly string[], options: CreateWebhookOptions): Promise<void> {
  const created = await call.flotilla().createWebhook({
    url,
    ...(options.description === undefined ? {} : { description: options.description }),
    ...(options.type === undefined ? {} : { types: [...options.type] }),
  });
  if (call.output.isJson) return call.output.json(created);
  call.output.line(created.secret);
  call.output.note(`${created.id}: save the secret now, it is not shown again`);
}

/**
 * `flotilla webhook rotate ID`: makes a new secret and prints it; it is shown only once.
 */
import type { Call } from "../call.ts";

export interface RotateOptions {
  readonly keepHours?: number;
}

export async function run(call: Call, [id = ""]: readonly string[], { keepHours }: RotateOptions): Promise<void> {
  const body = keepHours === undefined ? {} : { keepPreviousHours: keepHours };
  const rotated = await call.flotilla().rotateWebhookSecret(id, body);
  if (call.output.isJson) return call.output.json(rotated);
  call.output.line(rotated.secret);
  call.output.note(`${rotated.id}: save the secret now, it is not shown again`);
}

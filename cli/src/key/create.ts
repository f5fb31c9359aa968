/**
 * `flotilla key create`: makes an API key and prints it; it is shown only once.
 *
 * Standard output has only the key, so that it can be redirected to a file.
 */
import type { Call } from "../call.ts";
import { queryOfTenant } from "../find-by-name.ts";

export interface CreateKeyOptions {
  readonly description?: string;
  readonly scope?: readonly string[];
  /** Seconds. */
  readonly expiresIn?: number;
  readonly tenant?: string;
  readonly e2b?: boolean;
}

/** The same key as `e2b_` and hexadecimal digits, the only form that some of E2B's clients take. */
const inE2bForm = (key: string): string => `e2b_${Buffer.from(key.replace(/^smk_/, ""), "base64url").toString("hex")}`;

export async function run(call: Call, _operands: readonly string[], options: CreateKeyOptions): Promise<void> {
  const flotilla = call.flotilla();
  const created = await flotilla.createApiKey({
    ...(options.description === undefined ? {} : { description: options.description }),
    ...(options.scope === undefined ? {} : { scopes: options.scope }),
    ...(options.expiresIn === undefined ? {} : { expiresInSeconds: options.expiresIn }),
    ...(await queryOfTenant(flotilla, options.tenant)),
  });
  const shown = options.e2b === true ? { ...created, key: inE2bForm(created.key) } : created;
  if (call.output.isJson) return call.output.json(shown);
  call.output.line(shown.key);
  call.output.note(`${created.id}: save it now, it is not shown again`);
}

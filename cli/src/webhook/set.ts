/**
 * `flotilla webhook set ID`: changes what is given, and shows the webhook.
 */
import type { UpdateWebhookRequest } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { usage } from "../failure.ts";
import { stateOf } from "./ls.ts";

export interface SetWebhookOptions {
  readonly address?: string;
  readonly description?: string;
  readonly type?: readonly string[];
  readonly allTypes?: boolean;
  readonly disable?: boolean;
  readonly enable?: boolean;
}

export async function run(call: Call, [id = ""]: readonly string[], options: SetWebhookOptions): Promise<void> {
  const { address, description, type, allTypes, disable, enable } = options;
  if (disable === true && enable === true) throw usage("--enable and --disable exclude each other", "name one of them");
  if (type !== undefined && allTypes === true)
    throw usage("--type and --all-types exclude each other", "name one of them");
  const change: UpdateWebhookRequest = {
    ...(address === undefined ? {} : { url: address }),
    ...(description === undefined ? {} : { description }),
    ...(type === undefined ? {} : { types: [...type] }),
    ...(allTypes === true ? { types: null } : {}),
    ...(disable === true ? { enabled: false } : {}),
    ...(enable === true ? { enabled: true } : {}),
  };
  if (Object.keys(change).length === 0)
    throw usage("nothing to change was given", "`flotilla webhook set --help` lists the options");
  const changed = await call.flotilla().updateWebhook(id, change);
  if (call.output.isJson) return call.output.json(changed);
  call.output.line(`${changed.id}  ${stateOf(changed)}`);
}

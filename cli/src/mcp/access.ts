/**
 * A caller: its key, behind a client, and what the key may do.
 *
 * Always: the scopes only decide which tools are shown. The server checks the key at each call.
 */
import type { CallerInfo, Flotilla } from "@flotilla/sdk";

export interface Access {
  readonly flotilla: Flotilla;
  readonly caller: CallerInfo;
}

/** Whether the key has the scope, itself or by a wider one. */
export const may = ({ caller }: Access, scope: string): boolean =>
  ["*", "admin", scope].some((each) => caller.scopes.includes(each));

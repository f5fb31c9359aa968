/**
 * By which right a request goes on, for as long as its answer takes. Pure.
 */
import type { Access, Endpoint } from "@flotilla/contract/endpoint";
import type { Scope } from "@flotilla/contract/scopes";
import type { Right } from "../auth/access-watch.ts";
import type { KnownKey } from "../auth/key-cache.ts";

/** What goes on inside a machine ends with it, and what a caller is told has ended. */
const INSIDE: Partial<Record<Scope, string>> = {
  "machine:exec": "the command",
  "machine:files": "the transfer",
  "machine:read": "the log",
};

/** Whether only operators do it: it is allowed to those of a suspended tenant. */
export const isOperation = (access: Access): boolean => typeof access !== "string" && access.includes("admin");

/** `machineId`: the machine that the path names; undefined when it names none. */
export function rightOf(
  { access, isBridge }: Pick<Endpoint, "access" | "isBridge">,
  key: KnownKey,
  machineId: string | undefined,
): Right {
  const [scope] = typeof access === "string" ? [] : access;
  const inside = isBridge === true ? "the connection" : scope === undefined ? undefined : INSIDE[scope];
  return {
    what: inside ?? "the request",
    keyId: key.keyId,
    expiresAt: key.expiresAt,
    tenantId: isOperation(access) ? null : key.tenantId,
    machineId: inside === undefined ? null : (machineId ?? null),
    shareHash: null,
  };
}

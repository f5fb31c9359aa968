/**
 * The right that lets a request continue while its answer is sent. Pure.
 */
import type { Access, Endpoint } from "@flotilla/contract/endpoint";
import type { Scope } from "@flotilla/contract/scopes";
import type { Right } from "../auth/access-watch.ts";
import type { KnownKey } from "../auth/key-cache.ts";

/** Work inside a machine ends with the machine; these names tell the caller what has ended. */
const INSIDE: Partial<Record<Scope, string>> = {
  "machine:exec": "the command",
  "machine:files": "the transfer",
  "machine:read": "the log",
};

/** Whether only operators may do it: a suspended tenant does not stop them. */
export const isOperation = (access: Access): boolean => typeof access !== "string" && access.includes("admin");

/** `machineId`: the machine that the path names; undefined when it names none. */
export function rightOf({ access }: Pick<Endpoint, "access">, key: KnownKey, machineId: string | undefined): Right {
  const [scope] = typeof access === "string" ? [] : access;
  const isInside = scope !== undefined && machineId !== undefined;
  const inside = isInside ? INSIDE[scope] : undefined;
  return {
    what: inside ?? "the request",
    keyId: key.keyId,
    expiresAt: key.expiresAt,
    tenantId: isOperation(access) ? null : key.tenantId,
    machineId: inside === undefined ? null : (machineId ?? null),
    shareHash: null,
    publicAppId: null,
    sessionHash: key.sessionHash,
  };
}

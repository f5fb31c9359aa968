/**
 * Which of the gateway's parts a request is for: the REST interface, or a port of a sandbox.
 *
 * Pure. A sandbox is named by the host, by two headers, or by the first segment of the path, in this order: a
 * page of a sandbox cannot send its visitors to another one by a header.
 */
import { sandboxIdOf } from "./ids.ts";

/** Where the sandbox's own service listens, as E2B numbers it. */
export const ENVD_PORT = 49_983;
/** Where the helper for files, code and ports listens in a machine; the one for commands is at ENVD_PORT. */
export const FILES_PORT = 49_984;

export type Route =
  | { readonly kind: "api"; readonly path: string }
  | { readonly kind: "sandbox"; readonly sandboxId: string; readonly port: number; readonly path: string }
  /** No sandbox and no path of the REST interface: only a signature says which sandbox it is for. */
  | { readonly kind: "unnamed"; readonly path: string };

export interface RouteFacts {
  readonly host: string | undefined;
  readonly sandboxId: string | undefined;
  readonly port: string | undefined;
  /** Path and query. */
  readonly target: string;
}

const LABEL = /^(\d{1,5})-([a-z0-9]+)(?:-[a-z0-9-]*)?$/;

/** null: it names a sandbox that cannot be one. */
export function routeOf({ host = "", sandboxId, port, target }: RouteFacts): Route | null {
  const [label = "", ...domain] = host.toLowerCase().split(".");
  if (domain.length > 0 && LABEL.test(label)) return ofLabel(label, target);
  if (sandboxId !== undefined) return ofParts(sandboxId, port ?? String(ENVD_PORT), target);
  const [, first = "", rest = ""] = /^\/([^/?]+)([^]*)$/.exec(target) ?? [];
  if (LABEL.test(first)) return ofLabel(first, rest.startsWith("/") ? rest : `/${rest}`);
  if (/^\/files(\?|$)/.test(target)) return { kind: "unnamed", path: target };
  return { kind: "api", path: target };
}

function ofLabel(label: string, target: string): Route | null {
  const [, port = "", id = ""] = LABEL.exec(label) ?? [];
  return ofParts(id, port, target);
}

function ofParts(given: string, portText: string, path: string): Route | null {
  const sandboxId = sandboxIdOf(given);
  const port = Number(portText);
  if (sandboxId === null || !Number.isInteger(port) || port < 1 || port > 65_535) return null;
  return { kind: "sandbox", sandboxId, port, path };
}

/**
 * Announces this server and its version, for operators.
 *
 * Writes servers, through servers-store.ts: each server its own row. A stop removes the row; a crash
 * leaves it, and it is ignored soon.
 */
import type { Context } from "../context.ts";
import { announceServer, type ServerIdentity } from "./servers-store.ts";
import type { Reconciler } from "../family.ts";

export function serverReconciler(context: Context, server: ServerIdentity): Reconciler {
  return {
    name: "servers",
    purpose: "announces this server and its version",
    periodMs: 10_000,
    wakeOn: [],
    async activate() {
      await announceServer(context, server);
      return { errors: [], counts: {} };
    },
  };
}

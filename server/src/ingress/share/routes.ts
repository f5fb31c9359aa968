/**
 * Handlers that make and revoke the one share link of a machine.
 */
import { hashKey, makeShareToken } from "../../auth/keys.ts";
import type { HandlersOf } from "../../api/handler.ts";
import type { MachineServices } from "../../machines/services.ts";
import { machineNotFound } from "../../auth/not-found.ts";
import { findMachine } from "../../machines/store.ts";
import { putShare, removeShare } from "./store.ts";

export function shareHandlers(
  services: Pick<MachineServices, "activity" | "addresses" | "context">,
): HandlersOf<"createShare" | "removeShare"> {
  const { context, addresses, activity } = services;
  const { db } = context;
  return {
    async createShare({ caller, params, secretBytes }) {
      const { tenantId, keyId } = caller;
      const token = makeShareToken(secretBytes);
      const hash = hashKey(token);
      if (!(await putShare(context, { tenantId, machineId: params.id, hash, keyId }))) throw machineNotFound(params.id);
      // Closes what an earlier link has opened.
      await db.notify("shares", params.id);
      activity.note(params.id, { type: "machine.shared", data: {} });
      const machine = await findMachine(db, { tenantId, id: params.id });
      if (machine === undefined) throw machineNotFound(params.id);
      // A link outlives a stop, so it has an address while the machine is stopped too.
      const url = machine.ports.length === 0 ? null : `${addresses.urlOf(machine)}?t=${token}`;
      return { status: 200, body: { token, url } };
    },
    async removeShare({ caller, params }) {
      const machine = await findMachine(db, { tenantId: caller.tenantId, id: params.id });
      if (machine === undefined) throw machineNotFound(params.id);
      const hadOne = await removeShare(db, machine.id);
      await db.notify("shares", machine.id);
      if (hadOne) activity.note(machine.id, { type: "machine.unshared", data: {} });
      return { status: 204 };
    },
  };
}

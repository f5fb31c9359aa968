/**
 * The handlers of leases.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { HandlersOf } from "../api/handler.ts";
import type { MachineServices } from "../machines/services.ts";
import { machineInfo } from "../machines/view.ts";
import { assignLease, completeLease, heartbeat, leaseNotFound } from "./lease.ts";
import { findLease, type LeaseRow } from "./store.ts";

export function leaseHandlers(
  services: MachineServices,
): HandlersOf<"assignBranch" | "getLease" | "heartbeatLease" | "completeLease"> {
  const { addresses, context } = services;
  return {
    async assignBranch(request) {
      const { caller, params, body, signal, recordSent } = request;
      const { leaseId } = body;
      const { ownerToken, machine } = await assignLease(services, {
        ...{ tenantId: caller.tenantId, keyId: caller.keyId, machineId: params.id, leaseId, signal, recordSent },
        operationId: request.newId("operation"),
        files: (body.files ?? []).map(({ path, contentB64 }) => ({ path, content: contentOf(path, contentB64) })),
        ...{ task: body.task, secrets: body.secrets ?? null, ports: body.ports ?? null },
        ...{ ttlSeconds: body.ttlSecs ?? null, heartbeatSeconds: body.heartbeatSecs ?? null },
      });
      const answer = { leaseId, machineId: machine.id, ownerToken, state: "ready" };
      return { status: 201, body: { ...answer, machine: machineInfo(machine, addresses) } };
    },
    async getLease({ caller: { tenantId }, params: { id } }) {
      const lease = await findLease(context.db, { tenantId, id });
      if (lease === undefined) throw leaseNotFound(id);
      return { status: 200, body: leaseInfo(lease) };
    },
    async heartbeatLease({ caller: { tenantId }, params: { id }, body }) {
      return { status: 200, body: leaseInfo(await heartbeat(services, { tenantId, id }, body.ownerToken)) };
    },
    async completeLease({ caller: { tenantId }, params: { id }, body }) {
      const { ownerToken, reason, score = null, result } = body;
      const text = result === undefined ? null : JSON.stringify(result);
      const ended = await completeLease(services, { tenantId, id }, { ownerToken, reason, score, result: text });
      return { status: 200, body: leaseInfo(ended) };
    },
  };
}

const leaseInfo = ({ id, machineId, state, reason, score, result }: LeaseRow) => ({
  ...{ leaseId: id, machineId, state, reason, score },
  ...(result === null ? {} : { result: JSON.parse(result) as unknown }),
});

/** Buffer.from() would drop what is not base64. */
function contentOf(path: string, text: string): Buffer {
  if (!/^[A-Za-z0-9+/]*={0,2}$/.test(text) || text.length % 4 !== 0)
    throw new Refusal("invalid_body", `the contentB64 of ${JSON.stringify(path)} is not base64`, { field: "files" });
  return Buffer.from(text, "base64");
}

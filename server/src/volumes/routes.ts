/**
 * Serves /v1/volumes: records without storage.
 */
import { Refusal } from "@flotilla/contract/errors";
import { VOLUMES_MAX } from "@flotilla/contract/limits";
import type { Context } from "../context.ts";
import type { HandlersOf } from "../api/handler.ts";
import { listPage } from "../api/list-page.ts";
import { findVolume, insertVolume, listVolumes, removeVolume, type VolumeRecord } from "./store.ts";

const volumeInfo = ({ id, name, node, sizeGb, createdAt }: VolumeRecord) => ({
  id,
  name,
  nodeId: node,
  sizeGb,
  status: "unsupported",
  createdAt: new Date(createdAt).toISOString(),
  appInstanceId: null,
});

type Names = "listVolumes" | "createVolume" | "getVolume" | "deleteVolume";

export function volumeHandlers({ db, clock }: Context): HandlersOf<Names> {
  return {
    listVolumes: async ({ caller, query }) => {
      const found = (await listVolumes(db, caller.tenantId)).map(volumeInfo);
      const keyOf = ({ createdAt, id }: (typeof found)[number]): string => `${createdAt} ${id}`;
      const { body, headers } = listPage(found, query, { path: "/v1/volumes", keyOf });
      return { status: 200, body, headers };
    },
    createVolume: async (request) => {
      const { tenantId } = request.caller;
      const { name, sizeGb, node } = request.body;
      const volume = { id: request.newId("volume"), name, node: node ?? "", sizeGb, createdAt: clock.now() };
      const made = await insertVolume(db, { tenantId, ...volume }, VOLUMES_MAX);
      if (made === "name_taken") throw new Refusal("name_taken", `a volume named ${name} exists; use another name`);
      if (made === "too_many") {
        const text = `this tenant has ${VOLUMES_MAX} volumes, which is the maximum; delete one`;
        throw new Refusal("quota_exceeded", text);
      }
      return { status: 200, body: volumeInfo(made) };
    },
    getVolume: async ({ caller, params: { id } }) => {
      const found = await findVolume(db, { tenantId: caller.tenantId, id });
      if (found === undefined) throw new Refusal("not_found", `no volume ${id}`);
      return { status: 200, body: volumeInfo(found) };
    },
    deleteVolume: async ({ caller, params: { id } }) => {
      if (!(await removeVolume(db, { tenantId: caller.tenantId, id })))
        throw new Refusal("not_found", `no volume ${id}`);
      return { status: 204 };
    },
  };
}

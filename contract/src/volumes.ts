/**
 * Records of volumes. The API lists them, but they have no storage: a machine that mounts one starts without
 * it. Every answer to a key says so with the header `x-unsupported: volumes`.
 */
import { empty, endpoint, json } from "./endpoint.ts";
import { int64, nullable, optional, PageQuery, text, timestamp, Type } from "./schema.ts";

const SIZE_GB_MAX = 1_000_000;

export const CreateVolumeRequest = Type.Object({
  name: text({ minLength: 1, maxLength: 63, description: "unique in the tenant" }),
  sizeGb: int64({ minimum: 1, maximum: SIZE_GB_MAX }),
  node: optional(text({ maxLength: 128, description: "repeated in `nodeId`" })),
});

export const VolumeInfo = Type.Object({
  id: Type.String(),
  name: Type.String(),
  nodeId: Type.String({ description: "empty when the request named no node" }),
  sizeGb: int64(),
  status: Type.String({ description: "always `unsupported`: there is no storage" }),
  createdAt: timestamp(),
  appInstanceId: nullable(Type.String()),
});

export const volumeEndpoints = {
  listVolumes: endpoint({
    method: "GET",
    path: "/v1/volumes",
    family: "volumes",
    summary: "List volume records",
    access: "anyKey",
    query: PageQuery,
    answers: { 200: json(Type.Array(VolumeInfo)) },
    errors: ["invalid_body"],
    isUnsupported: true,
  }),
  createVolume: endpoint({
    method: "POST",
    path: "/v1/volumes",
    family: "volumes",
    summary: "Create a volume record, without storage",
    access: "anyKey",
    body: { kind: "json", schema: CreateVolumeRequest },
    answers: { 200: json(VolumeInfo) },
    errors: ["invalid_json", "invalid_request", "invalid_body", "name_taken", "quota_exceeded"],
    isUnsupported: true,
  }),
  getVolume: endpoint({
    method: "GET",
    path: "/v1/volumes/{id}",
    family: "volumes",
    summary: "Read a volume record",
    access: "anyKey",
    answers: { 200: json(VolumeInfo) },
    errors: ["not_found"],
    isUnsupported: true,
  }),
  deleteVolume: endpoint({
    method: "DELETE",
    path: "/v1/volumes/{id}",
    family: "volumes",
    summary: "Delete a volume record",
    access: "anyKey",
    answers: { 204: empty() },
    errors: ["not_found"],
    isUnsupported: true,
  }),
} as const;

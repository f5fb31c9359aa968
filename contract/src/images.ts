/**
 * Images cached on nodes. References resolve as container engines do (`alpine` is
 * `docker.io/library/alpine:latest`); `local/<name>[:tag]` names an image made or imported on a node and is
 * never pulled.
 */
import { empty, endpoint, json } from "./endpoint.ts";
import { IMAGE_FAULTS } from "./errors.ts";
import { Operation } from "./operations.ts";
import { int32, int64, nullable, optional, PageQuery, type Static, text, timestamp, Type } from "./schema.ts";

export const ImageInfo = Type.Object({
  reference: Type.String(),
  digest: Type.String({ description: "of the image manifest" }),
  size: int64({ description: "bytes on the node's disk" }),
  architecture: Type.String(),
  os: Type.String(),
  layerCount: int32(),
  nodeId: Type.String(),
  lastUsedAt: nullable(timestamp()),
});
export type ImageInfo = Static<typeof ImageInfo>;

export const imageEndpoints = {
  listImages: endpoint({
    method: "GET",
    path: "/v1/images",
    family: "images",
    summary: "The images that each node has cached",
    access: ["machine:read"],
    query: PageQuery,
    answers: { 200: json(Type.Array(ImageInfo)) },
    errors: ["invalid_body", "unavailable"],
    isExtra: true,
  }),
  pullImage: endpoint({
    method: "POST",
    path: "/v1/images/pull",
    family: "images",
    summary: "Fetch an image to one node or to all, before a machine needs it",
    description:
      "Answers immediately with an operation that has a step for each node. The image's registry is asked what the name means now, " +
      "even by a node that has the image.",
    access: ["machine:create"],
    body: {
      kind: "json",
      schema: Type.Object({
        reference: text({ minLength: 1, maxLength: 512 }),
        nodeId: optional(text({ maxLength: 128 })),
      }),
    },
    answers: { 202: json(Operation) },
    errors: ["invalid_json", "invalid_request", "invalid_body", "not_found", "unavailable"],
    isExtra: true,
  }),
  importImage: endpoint({
    method: "POST",
    path: "/v1/images/import",
    family: "images",
    summary: "Upload an image to a node as an archive: an OCI layout, a docker archive or a tar of a root file system",
    access: ["admin"],
    query: Type.Object({
      reference: text({ minLength: 1, maxLength: 512, description: "the image's new name, such as `local/tools:1`" }),
      nodeId: Type.Optional(text({ maxLength: 128, description: "needed when there are several nodes" })),
    }),
    body: { kind: "bytes" },
    answers: { 200: json(ImageInfo) },
    errors: ["invalid_request", "invalid_body", "not_found", "unavailable", "no_space"],
    isExtra: true,
  }),
  deleteImage: endpoint({
    method: "DELETE",
    path: "/v1/images",
    family: "images",
    summary: "Remove a local image from one node or from all",
    description:
      "Its space is free at once, unless a machine's disk depends on it, or it was used in the last two minutes: then once it may be " +
      "removed for others. Images of registries are removed by themselves when room is needed. 503 when a node does not answer: it may " +
      "still have the image, and a repetition removes it there.",
    access: ["admin"],
    query: Type.Object({
      reference: text({ minLength: 1, maxLength: 512, description: "such as `local/tools:1`" }),
      nodeId: Type.Optional(text({ maxLength: 128 })),
    }),
    answers: { 204: empty() },
    errors: ["invalid_request", "invalid_body", "not_found", "unavailable"],
    isExtra: true,
  }),
  listMachineImages: endpoint({
    method: "GET",
    path: "/v1/machines/{id}/images",
    family: "machines",
    summary: "The image of the machine, as cached on its node",
    access: ["machine:read"],
    answers: { 200: json(Type.Object({ images: Type.Array(ImageInfo) })) },
    errors: ["not_found", "unavailable"],
    isExtra: true,
  }),
  pullMachineImage: endpoint({
    method: "POST",
    path: "/v1/machines/{id}/images/pull",
    family: "machines",
    summary: "Fetch an image to the machine's node",
    access: ["machine:create"],
    body: {
      kind: "json",
      schema: Type.Object({ image: text({ minLength: 1, maxLength: 512 }), ociPlatform: optional(text()) }),
    },
    answers: { 200: json(ImageInfo) },
    errors: [
      ...(["invalid_json", "invalid_request", "invalid_body", "not_found", "conflict", "unavailable"] as const),
      ...IMAGE_FAULTS.filter((code) => code !== "image_not_cached"),
    ],
    isExtra: true,
  }),
} as const;

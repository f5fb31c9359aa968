/**
 * Packages: disks of stopped machines as artifacts in the registry, from which machines are made. Clients
 * push and pull their bytes under `/v2/`, as the OCI distribution specification says.
 *
 * References: `web:1` is `tenants/<your tenant>/web:1`; `library/<name>` is read by all and written by
 * operators; no tag means `latest`.
 */
import { empty, endpoint, json } from "./endpoint.ts";
import { PACKAGES_KEPT_MAX } from "./limits.ts";
import { Operation } from "./operations.ts";
import { int32, int64, nullable, optional, pageQuery, type Static, text, timestamp, Type } from "./schema.ts";

export const ExportRequest = Type.Object({
  tag: optional(text({ maxLength: 128, description: "default: latest" })),
  name: optional(
    text({ maxLength: 255, description: "of the package, such as `web`; default: the machine's name, in lower case" }),
  ),
  includeEnv: optional(
    Type.Boolean({
      description: "whether the machine's environment is in the package; never what is in its secret variables",
    }),
  ),
});

export const ExportResponse = Type.Object({
  reference: Type.String({ description: "such as `tenants/<your tenant>/web:latest`" }),
  digest: Type.String({ description: "of the manifest; the same for the same disk" }),
  sizeBytes: int64({ description: "of all layers, as they are stored" }),
  platforms: Type.Array(Type.String(), { examples: [["linux/amd64"]] }),
});
export type ExportResponse = Static<typeof ExportResponse>;

export const PackageInfo = Type.Object({
  reference: Type.String({ description: "with the newest tag" }),
  digest: Type.String(),
  tags: Type.Array(Type.String(), { description: "the newest first" }),
  sizeBytes: int64({ description: "of all that it needs, also of what other packages share with it" }),
  diskGb: nullable(int64({ description: "the smallest disk of a machine from it; null: it is not a machine's disk" })),
  architecture: nullable(Type.String()),
  image: nullable(Type.String({ description: "what the machine was made from" })),
  imageDigest: nullable(Type.String()),
  machineId: nullable(Type.String({ description: "the machine whose disk it is; it may be gone" })),
  createdAt: timestamp(),
  updatedAt: timestamp("when its newest tag was set"),
});
export type PackageInfo = Static<typeof PackageInfo>;

const packageName = text({ minLength: 1, maxLength: 255, description: "such as `web` or `library/tools`" });

export const PackageRetention = Type.Object({
  name: Type.String(),
  keepLast: nullable(int32({ description: "how many tags are kept, the newest; null: all" })),
});
export type PackageRetention = Static<typeof PackageRetention>;

export const packageEndpoints = {
  exportMachine: endpoint({
    method: "POST",
    path: "/v1/machines/{id}/export",
    family: "machines",
    summary: "Package a stopped machine's disk as an artifact of the registry",
    description:
      "A start of the machine ends the export. An unchanged disk has the same digest, and only what changed is sent. Answers 202 with the operation when the export takes longer than 30 s; an equal request finds an export that runs.",
    access: ["machine:create"],
    query: Type.Object({
      detach: Type.Optional(Type.Boolean({ description: "answer 202 immediately, with the operation" })),
    }),
    body: { kind: "json", isOptional: true, schema: ExportRequest },
    answers: { 200: json(ExportResponse), 202: json(Operation, "detached, or not complete after 30 s") },
    errors: [
      ...(["invalid_json", "invalid_request", "invalid_body", "not_found", "conflict"] as const),
      ...(["quota_exceeded", "rate_limited", "unavailable", "no_space"] as const),
    ],
  }),
  listPackages: endpoint({
    method: "GET",
    path: "/v1/packages",
    family: "packages",
    summary: "List the tenant's packages and those of the library, by name, the newest first",
    access: ["machine:read"],
    query: Type.Object(pageQuery),
    answers: { 200: json(Type.Array(PackageInfo)) },
    errors: ["invalid_body"],
    isExtra: true,
  }),
  deletePackage: endpoint({
    method: "DELETE",
    path: "/v1/packages",
    family: "packages",
    summary: "Delete a tag, or with a digest the package and all of its tags",
    description: "Layers that other packages share stay. Machines that were started from it keep their disks.",
    access: ["machine:delete"],
    query: Type.Object({
      reference: text({ minLength: 1, maxLength: 512, description: "such as `web:1` or `web@sha256:…`" }),
    }),
    answers: { 204: empty() },
    errors: ["invalid_request", "invalid_body", "not_found", "conflict"],
    isExtra: true,
  }),
  listPackageRetention: endpoint({
    method: "GET",
    path: "/v1/packages/retention",
    family: "packages",
    summary: "List how many tags of which packages are kept",
    access: ["machine:read"],
    answers: { 200: json(Type.Array(PackageRetention)) },
    isExtra: true,
  }),
  setPackageRetention: endpoint({
    method: "PUT",
    path: "/v1/packages/retention",
    family: "packages",
    summary: "Keep only the newest tags of a package; older ones are deleted when a newer one is set",
    access: ["machine:delete"],
    body: {
      kind: "json",
      schema: Type.Object({
        name: packageName,
        keepLast: nullable(int32({ minimum: 1, maximum: PACKAGES_KEPT_MAX, description: "null: all" })),
      }),
    },
    answers: { 200: json(PackageRetention) },
    errors: ["invalid_json", "invalid_request", "invalid_body", "not_found"],
    isExtra: true,
  }),
  registerPackage: endpoint({
    method: "POST",
    path: "/v1/registry/machines",
    family: "registry",
    summary: "Check that a package that was pushed to the registry is there",
    access: ["machine:create"],
    body: {
      kind: "json",
      schema: Type.Object({
        repo: text(),
        tag: text(),
        digest: text(),
        sizeBytes: int64(),
        platforms: Type.Array(text()),
        manifest: text(),
      }),
    },
    answers: {
      200: json(Type.Object({ repo: Type.String(), tag: Type.String(), digest: Type.String(), count: int32() })),
    },
    errors: ["invalid_json", "invalid_request", "invalid_body", "not_found", "conflict"],
    isExtra: true,
  }),
} as const;

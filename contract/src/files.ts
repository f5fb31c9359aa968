/**
 * Files of a machine, and the bridge to its published ports. Bodies are streamed in both directions.
 */
import { empty, endpoint, json, stream } from "./endpoint.ts";
import { IMAGE_FAULTS } from "./errors.ts";
import { int64, nullable, oneOf, type Static, Type, text, timestamp } from "./schema.ts";

const OCTETS = "application/octet-stream";
const fileErrors = [
  "invalid_request",
  "not_found",
  "conflict",
  "quota_exceeded",
  "no_capacity",
  ...IMAGE_FAULTS,
  "guest_unreachable",
  "unavailable",
  "start_failed",
] as const;
const readErrors = [...fileErrors, "range_not_satisfiable"] as const;
const writeErrors = [...fileErrors, "no_space"] as const;

/** An entry of the list that `?list=true` requests. */
export const FileEntry = Type.Object({
  name: Type.String(),
  kind: oneOf(["file", "directory", "link", "other"]),
  size: int64(),
  mode: Type.String({ description: "four octal digits" }),
  modifiedAt: timestamp(),
});
export type FileEntry = Static<typeof FileEntry>;

const FILE_HEADERS = {
  "accept-ranges": "`bytes`",
  etag: "changes with the file's size and modification time; can be sent as `If-Range`",
  "last-modified": "when the file was last written",
  "x-file-mode": "the file's permissions, four octal digits",
} as const;

const bytesAnswers = {
  200: {
    ...stream(OCTETS, "the file; with `list=true` the directory's entries as JSON"),
    headers: { ...FILE_HEADERS, "x-content-sha256": "SHA-256 of the file in hexadecimal; absent for large files" },
  },
  206: {
    ...stream(OCTETS, "the part that `Range` requests"),
    headers: { ...FILE_HEADERS, "content-range": "which part of the file this is, `bytes <first>-<last>/<size>`" },
  },
} as const;

const readAnswers = { ...bytesAnswers, 200: { ...bytesAnswers[200], orJson: Type.Array(FileEntry) } } as const;

export const ConnectToken = Type.Object({ token: Type.String(), expiresAt: timestamp(), machineId: Type.String() });

const readQuery = Type.Object({ path: Type.Optional(text()), list: Type.Optional(Type.Boolean()) });

export const fileEndpoints = {
  readFile: endpoint({
    method: "GET",
    path: "/v1/machines/{id}/files",
    family: "machines",
    summary: "Read a file",
    access: ["machine:files"],
    query: readQuery,
    answers: readAnswers,
    errors: readErrors,
    hasHead: true,
  }),
  writeFile: endpoint({
    method: "POST",
    path: "/v1/machines/{id}/files",
    family: "machines",
    summary: "Write a file",
    access: ["machine:files"],
    query: Type.Object({ path: Type.Optional(text()) }),
    body: { kind: "bytes" },
    answers: { 200: empty() },
    errors: writeErrors,
  }),
  readFileAt: endpoint({
    method: "GET",
    path: "/v1/machines/{id}/files/{path...}",
    family: "machines",
    summary: "Read a file, its path in the URL",
    description:
      "With `list=true` the answer is JSON, as of `readFile`. Only the bytes are declared here, because generated clients " +
      "that know one type for an answer would read files as JSON.",
    access: ["machine:files"],
    query: Type.Object({ list: Type.Optional(Type.Boolean()) }),
    answers: bytesAnswers,
    errors: readErrors,
    hasHead: true,
    isExtra: true,
  }),
  putFileAt: endpoint({
    method: "PUT",
    path: "/v1/machines/{id}/files/{path...}",
    family: "machines",
    summary: "Write a file, its path in the URL",
    access: ["machine:files"],
    body: { kind: "bytes" },
    answers: { 204: empty() },
    errors: writeErrors,
    isExtra: true,
  }),
  postFileAt: endpoint({
    method: "POST",
    path: "/v1/machines/{id}/files/{path...}",
    family: "machines",
    summary: "Write a file, its path in the URL",
    access: ["machine:files"],
    body: { kind: "bytes" },
    answers: { 200: empty() },
    errors: writeErrors,
    isExtra: true,
  }),
  deleteFileAt: endpoint({
    method: "DELETE",
    path: "/v1/machines/{id}/files/{path...}",
    family: "machines",
    summary: "Remove a file or an empty directory",
    access: ["machine:files"],
    answers: { 204: empty() },
    errors: fileErrors,
    isExtra: true,
  }),
  ...connectMethods(),
  createConnectToken: endpoint({
    method: "POST",
    path: "/v1/machines/{id}/connect-token",
    family: "machines",
    summary: "A short-lived token that opens only the connect bridge of this machine",
    access: ["machine:exec"],
    body: {
      kind: "json",
      isOptional: true,
      schema: Type.Object({ ttlSeconds: Type.Optional(nullable(Type.Integer({ minimum: 60, maximum: 86_400 }))) }),
    },
    answers: { 201: json(ConnectToken) },
    errors: ["not_found", "invalid_json", "invalid_body", "quota_exceeded"],
    isExtra: true,
  }),
} as const;

function connectMethods() {
  const bridge = <const M extends "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS">(method: M) =>
    endpoint({
      method,
      path: "/v1/machines/{id}/connect/{port}/{path...}",
      aliases: ["/v1/machines/{id}/connect/{port}"],
      family: "machines",
      summary: "Forward a request to a published port; the guest's answer is passed through",
      description:
        "The query and the body are forwarded unchanged, and so is the answer, including its status. A WebSocket " +
        "handshake opens a WebSocket with the guest; only then may the key be in the query, as `access_token`.",
      access: ["machine:exec"],
      ...(["POST", "PUT", "PATCH"].includes(method) ? { body: { kind: "bytes" } as const } : {}),
      answers: { 200: stream("*/*", "the guest's answer") },
      errors: ["not_found", "guest_unreachable", "unavailable"],
      isBridge: true,
      isExtra: true,
    });
  return {
    connectGet: bridge("GET"),
    connectHead: bridge("HEAD"),
    connectPost: bridge("POST"),
    connectPut: bridge("PUT"),
    connectPatch: bridge("PATCH"),
    connectDelete: bridge("DELETE"),
    connectOptions: bridge("OPTIONS"),
  };
}

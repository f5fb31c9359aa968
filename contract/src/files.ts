/**
 * Files of a machine, and the bridge to its published ports. Bodies are streamed both ways.
 */
import { empty, endpoint, json, stream } from "./endpoint.ts";
import { nullable, Type, text, timestamp } from "./schema.ts";

const OCTETS = "application/octet-stream";
const fileErrors = [
  "not_found",
  "invalid_request",
  "conflict",
  "no_space",
  "guest_unreachable",
  "start_failed",
] as const;

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
    answers: { 200: stream(OCTETS) },
    errors: fileErrors,
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
    errors: fileErrors,
  }),
  readFileAt: endpoint({
    method: "GET",
    path: "/v1/machines/{id}/files/{path...}",
    family: "machines",
    summary: "Read a file, its path in the URL",
    access: ["machine:files"],
    query: Type.Object({ list: Type.Optional(Type.Boolean()) }),
    answers: { 200: stream(OCTETS) },
    errors: fileErrors,
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
    errors: fileErrors,
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
    errors: fileErrors,
    isExtra: true,
  }),
  deleteFileAt: endpoint({
    method: "DELETE",
    path: "/v1/machines/{id}/files/{path...}",
    family: "machines",
    summary: "Remove a file",
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
    errors: ["not_found", "invalid_json", "invalid_body"],
    isExtra: true,
  }),
} as const;

function connectMethods() {
  const bridge = <const M extends "GET" | "POST" | "PUT" | "PATCH" | "DELETE">(method: M) =>
    endpoint({
      method,
      path: "/v1/machines/{id}/connect/{port}/{path...}",
      aliases: ["/v1/machines/{id}/connect/{port}"],
      family: "machines",
      summary: "Forward a request to a published port; the guest's answer is passed through",
      access: ["machine:exec"],
      ...(method === "GET" || method === "DELETE" ? {} : { body: { kind: "bytes" } as const }),
      answers: { 200: stream("*/*", "whatever the guest answers") },
      errors: ["not_found", "unavailable"],
      isExtra: true,
    });
  return {
    connectGet: bridge("GET"),
    connectPost: bridge("POST"),
    connectPut: bridge("PUT"),
    connectPatch: bridge("PATCH"),
    connectDelete: bridge("DELETE"),
  };
}

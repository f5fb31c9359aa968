/**
 * Operations on the registry of packages itself. Its content is read and written under `/v2/`, as the OCI
 * distribution specification says.
 */
import { endpoint, json } from "./endpoint.ts";
import { Operation } from "./operations.ts";

export const registryEndpoints = {
  collectRegistry: endpoint({
    method: "POST",
    path: "/v1/registry/collections",
    family: "registry",
    summary: "Delete from the registry what no package needs any more",
    description:
      "Answers immediately with an operation. It waits until nothing is pushed, and pushes that begin meanwhile wait for it. " +
      "The server requests one each day. Only of the registry that the server runs itself: another one has its own rules.",
    access: ["admin"],
    answers: { 202: json(Operation) },
    errors: ["conflict", "rate_limited", "unavailable"],
    isExtra: true,
  }),
} as const;

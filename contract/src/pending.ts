/**
 * The endpoints that are declared but not served yet: they answer 501, and the description says so. The list
 * only shrinks; a test compares it with what the server serves.
 */
import type { EndpointName } from "./endpoints.ts";

export const PENDING_ENDPOINTS = ["exportMachine", "registerPackage"] as const satisfies readonly EndpointName[];

export type PendingEndpoint = (typeof PENDING_ENDPOINTS)[number];

/**
 * The JSON answers of the link.
 */
import type { ServerResponse } from "node:http";
import type { LinkError } from "@flotilla/contract/link/link";

export function sendJson(response: ServerResponse, status: number, body: unknown): void {
  const bytes = Buffer.from(JSON.stringify(body));
  response.writeHead(status, { "content-type": "application/json", "content-length": bytes.byteLength }).end(bytes);
}

export const refuse = (response: ServerResponse, status: number, error: LinkError): void =>
  sendJson(response, status, error);

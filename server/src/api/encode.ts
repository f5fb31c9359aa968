/**
 * From a handler's reply to the answer that is sent.
 *
 * Always:
 * - JSON is compact and its content type is exactly `application/json`.
 * - An answer that the contract does not declare is a server fault.
 */
import { Readable } from "node:stream";
import type { Outgoing } from "../http/answer.ts";
import type { AnyReply } from "./handler.ts";
import type { Route } from "./route-table.ts";

export function encode(route: Route, reply: AnyReply): Outgoing {
  const answer = route.endpoint.answers[reply.status];
  if (answer === undefined)
    throw new Error(`${route.name} answered ${reply.status}, which the contract does not declare`);
  const headers: Record<string, string> = { ...reply.headers };
  if (reply.upgrade !== undefined) return { status: reply.status, headers, body: "", upgrade: reply.upgrade };
  if (answer.kind === "empty") return { status: reply.status, headers, body: "" };
  if (answer.kind === "json" && answer.orStream !== undefined && reply.body instanceof Readable) {
    headers["content-type"] = reply.contentType ?? answer.orStream;
    return { status: reply.status, headers, body: reply.body };
  }
  if (answer.kind === "json") {
    const fault = route.checkAnswer.get(reply.status)?.(reply.body);
    if (fault !== undefined)
      throw new Error(`${route.name} answered ${reply.status} with a body that does not fit: ${fault.text}`);
    headers["content-type"] = "application/json";
    return { status: reply.status, headers, body: reply.json ?? JSON.stringify(reply.body) };
  }
  headers["content-type"] = reply.contentType ?? answer.contentType;
  return { status: reply.status, headers, body: reply.body as string | Readable };
}

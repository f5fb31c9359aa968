/**
 * Results of tools: what the API answered, and what it refused, as text that an assistant reads.
 *
 * Always:
 * - A refusal is a result that says so, never an error of the protocol. Only bugs of ours are thrown.
 * - A result has at most TEXT_CHARACTERS_MAX characters, and says when something is left out.
 * - Names, paths and output are data: they are passed on as they are, inside of JSON or in a separate part.
 */
import { FlotillaError } from "@flotilla/sdk";
import type { CallToolResult } from "@modelcontextprotocol/server";
import { Failure } from "../failure.ts";
import { CeilingReached } from "./ceilings.ts";

/** Much more than this crowds an assistant's context. */
const TEXT_CHARACTERS_MAX = 48 * 1024;

export const text = (said: string): CallToolResult => ({ content: [{ type: "text", text: said }] });

/** An answer of the API, as JSON. */
export function json(value: unknown, more = ""): CallToolResult {
  const whole = JSON.stringify(value, null, 1);
  if (whole.length <= TEXT_CHARACTERS_MAX) return text(whole + more);
  return text(
    `${whole.slice(0, TEXT_CHARACTERS_MAX)}\n[${whole.length - TEXT_CHARACTERS_MAX} characters left out]${more}`,
  );
}

export const failed = (said: string): CallToolResult => ({ ...text(said), isError: true });

/** The result of a call that was refused or had no answer. Rethrows a bug of ours. */
export function refused(error: unknown): CallToolResult {
  if (error instanceof Failure || error instanceof CeilingReached) return failed(error.message);
  if (!(error instanceof FlotillaError)) throw error;
  const id = error.requestId === null ? "" : ` [request id: ${error.requestId}]`;
  const advice = error.advice === null ? "" : `\n${error.advice}`;
  return failed(`${error.code}: ${error.text}${id}${advice}`);
}

/**
 * From the bytes of a body to the value that its JSON says. Pure.
 *
 * Always: text that PostgreSQL refuses is refused here, unless the handler repairs it.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { Check } from "./validate.ts";

/** How many values JSON may have, and on how many levels. */
export interface Extent {
  readonly valuesMax: number;
  readonly levelsMax: number;
}

/** Bound of callers with keys: more than any endpoint has a use for. A large body is mostly one long text. */
export const CALLER_EXTENT: Extent = { valuesMax: 20_000, levelsMax: 256 };

const decoder = new TextDecoder("utf-8", { fatal: true });

/** What a body says, as the endpoint declares it. Throws a Refusal when it does not fit. */
export function checkBody(body: unknown, isOptional: boolean, check: Check | undefined): unknown {
  if (body === undefined && !isOptional)
    throw new Refusal("invalid_json", "Failed to parse the request body as JSON: the body is empty");
  if ((body === undefined || body === null) && isOptional) return undefined;
  const fault = check?.(body);
  if (fault !== undefined) {
    const text = `Failed to deserialize the JSON body into the target type: ${fault.text}`;
    throw new Refusal("invalid_body", text, fault.details);
  }
  return body;
}

/**
 * The value, or undefined for no body at all. Refuses what is not JSON with 400. `isRepaired`: text that
 * cannot be stored is repaired later.
 */
export function parseJson(bytes: Uint8Array, isRepaired = false): unknown {
  if (bytes.length === 0) return undefined;
  let text: string;
  let value: unknown;
  try {
    text = decoder.decode(bytes);
    value = JSON.parse(text);
  } catch (error) {
    const reason = error instanceof SyntaxError ? error.message : "it is not UTF-8";
    throw new Refusal("invalid_json", `Failed to parse the request body as JSON: ${reason}`);
  }
  // Only an escape can bring in what the database cannot hold, so most bodies are not walked.
  if (!isRepaired && /\\u(0000|[dD][89a-fA-F])/.test(text)) refuseUnstorable(value);
  return value;
}

/** A lone half of a surrogate pair anywhere, or a NUL in a name, is text that PostgreSQL refuses. */
function refuseUnstorable(root: unknown): void {
  const pending: unknown[] = [root];
  for (let value = pending.pop(); value !== undefined; value = pending.pop()) {
    if (typeof value === "string" && !value.isWellFormed()) refuseText("a string with half a surrogate pair");
    if (typeof value !== "object" || value === null) continue;
    for (const [name, item] of Object.entries(value)) {
      if (name.includes("\0")) refuseText("a field name with a NUL character");
      if (!name.isWellFormed()) refuseText("a field name with half a surrogate pair");
      pending.push(item);
    }
  }
}

function refuseText(what: string): never {
  throw new Refusal("invalid_body", `Failed to deserialize the JSON body into the target type: it contains ${what}`);
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPENING = new Set([0x5b, 0x7b]);
const CLOSING = new Set([0x5d, 0x7d]);

/**
 * Throws a Refusal when the JSON has more values, or more levels, than is sensible: parsing many small values
 * takes a hundred times as long as one long text of as many bytes. Says nothing about what is not JSON.
 */
export function checkExtent(bytes: Uint8Array, { valuesMax, levelsMax }: Extent): void {
  let values = 0;
  let depth = 0;
  for (let at = 0; at < bytes.length; at += 1) {
    const byte = bytes[at] ?? 0;
    if (byte === QUOTE) at = endOfText(bytes, at);
    else if (byte === COMMA) values += 1;
    else if (OPENING.has(byte)) {
      values += 1;
      depth += 1;
    } else if (CLOSING.has(byte)) depth -= 1;
    if (values > valuesMax) throw new Refusal("invalid_body", `the JSON has more than ${valuesMax} values`);
    if (depth > levelsMax) throw new Refusal("invalid_body", `the JSON is nested more than ${levelsMax} levels deep`);
  }
}

/** Where the text that begins at `start` ends. */
function endOfText(bytes: Uint8Array, start: number): number {
  for (let at = start + 1; at < bytes.length; at += 1) {
    if (bytes[at] === BACKSLASH) at += 1;
    else if (bytes[at] === QUOTE) return at;
  }
  return bytes.length;
}

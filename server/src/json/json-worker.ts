/**
 * The thread that turns large bodies into what their handlers need (large-json.ts): parses, checks against
 * the endpoint's schema, and takes the long text out as bytes.
 *
 * Always: what goes back is small (REST_CHARACTERS_MAX) but for the long text, which changes hands without a
 * copy. A message of a node goes back as such a text: the JSON of what its reader made of it, which has only
 * the fields of its schema. The thread for callers runs at a low priority: on a busy host, calls with small
 * bodies come first.
 */
import { createHash } from "node:crypto";
import { setPriority } from "node:os";
import { parentPort, workerData } from "node:worker_threads";
import { Refusal } from "@flotilla/contract/errors";
import { JSON_BODY_BYTES_MAX } from "@flotilla/contract/limits";
import { CALLER_EXTENT, checkBody, checkExtent, parseJson } from "./json.ts";
import { type BodyShape, LARGE_JSON_BYTES, type ParseOrder, type Parsed, type ThreadData } from "./large-json.ts";
import { readNodeMessage } from "./node-message.ts";
import { type Check, compile } from "./validate.ts";

const LOW_PRIORITY = 10;
/** The texts of a body without its long one. As much as the whole body of any other endpoint. */
const REST_CHARACTERS_MAX = JSON_BODY_BYTES_MAX;

const checks = new Map<string, Check>();

/** Shapes arrive as copies, so the endpoint's name identifies them. */
function checkOf({ name, schema }: BodyShape): Check {
  let check = checks.get(name);
  if (check === undefined) {
    check = compile(schema);
    checks.set(name, check);
  }
  return check;
}

function parsed({ pieces, shape, isDigested }: ParseOrder): Parsed {
  const bytes = Buffer.concat(pieces);
  const digest = isDigested ? createHash("sha256").update(bytes).digest("hex") : null;
  try {
    if (shape.message !== null) {
      const message = JSON.stringify(readNodeMessage(shape.message, bytes));
      return { value: null, text: new TextEncoder().encode(message), digest };
    }
    checkExtent(bytes, CALLER_EXTENT);
    const value = checkBody(parseJson(bytes), shape.isOptional, checkOf(shape));
    const text = takeText(value, shape.longText);
    checkRest(value, shape.longText);
    return { value, text, digest };
  } catch (error) {
    if (error instanceof Refusal) return { code: error.code, reason: error.message, details: error.details, digest };
    throw error;
  }
}

/** Takes a long text out of the body. */
function takeText(value: unknown, name: string | null): Uint8Array<ArrayBuffer> | null {
  if (name === null || typeof value !== "object" || value === null) return null;
  const fields = value as Record<string, unknown>;
  const text = fields[name];
  if (typeof text !== "string" || text.length < LARGE_JSON_BYTES) return null;
  fields[name] = null;
  return new TextEncoder().encode(text);
}

/** Throws a Refusal for text that no handler has a use for: taking it over would hold up every other call. */
function checkRest(root: unknown, longText: string | null): void {
  let characters = 0;
  const pending: unknown[] = [root];
  while (pending.length > 0) {
    const value = pending.pop();
    if (typeof value === "string") characters += value.length;
    if (typeof value !== "object" || value === null) continue;
    for (const [name, item] of Object.entries(value)) {
      characters += name.length;
      pending.push(item);
    }
  }
  if (characters <= REST_CHARACTERS_MAX) return;
  const besides = longText === null ? "" : ` beside \`${longText}\``;
  throw new Refusal(
    "body_too_large",
    `the body has ${characters} characters${besides}; it may have ${REST_CHARACTERS_MAX}`,
  );
}

if (!(workerData as ThreadData).isUrgent) setPriority(LOW_PRIORITY);
parentPort?.on("message", (order: ParseOrder) => {
  const answer = parsed(order);
  const given = "value" in answer && answer.text !== null ? [answer.text.buffer] : [];
  parentPort?.postMessage(answer, given);
});

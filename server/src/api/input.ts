/**
 * What a request says: path parameters, query and body, each checked against the contract.
 *
 * Always: a large body is read only for a target that exists and is the caller's.
 */
import type { IncomingMessage } from "node:http";
import { Refusal } from "@flotilla/contract/errors";
import { JSON_BODY_BYTES_MAX } from "@flotilla/contract/limits";
import { hasBody, joined, readBody } from "../http/body.ts";
import { STREAM_SILENCE_MS_MAX, UNSEEN_BODY_BYTES_MAX } from "../fairness/bounds.ts";
import { searchOf } from "../http/request.ts";
import type { Exchange, HandleParts } from "./exchange.ts";
import { checkBody, parseJson } from "../json/json.ts";
import { LARGE_JSON_BYTES } from "../json/large-json.ts";
import { readNodeMessage } from "../json/node-message.ts";
import { coerceQuery } from "./query.ts";
import type { Route } from "./route-table.ts";

const PARAMETER_CHARACTERS_MAX = 256;
const EMPTY_BYTES_MAX = 16;

/** No id has a NUL or is long, so such a path names nothing. Throws a Refusal. */
export function checkParameters(raw: Exchange["params"], route: Route): Readonly<Record<string, string>> {
  const params: Record<string, string> = {};
  for (const name of route.segmentNames) {
    const value = raw[name] ?? "";
    if (value.length > PARAMETER_CHARACTERS_MAX || value === "") throw new Refusal("not_found", "no such resource");
    params[name] = value;
  }
  if (route.tailName !== undefined) params[route.tailName] = raw["*"] ?? "";
  for (const name in params) {
    const value = params[name] ?? "";
    if (value.includes("\0") || !value.isWellFormed()) throw new Refusal("not_found", "no such resource");
  }
  return params;
}

/** Throws a Refusal when the query does not fit. */
export function checkQuery(url: string, route: Route): Readonly<Record<string, unknown>> {
  if (route.checkQuery === undefined || route.endpoint.query === undefined) return {};
  const query = coerceQuery(route.endpoint.query, searchOf(url));
  const fault = route.checkQuery(query);
  if (fault !== undefined)
    throw new Refusal("invalid_body", `Failed to deserialize query string: ${fault.text}`, fault.details);
  return query;
}

/** The body of a request. */
export interface Input {
  /** undefined: the handler reads it as a stream. */
  readonly bytes: Buffer | undefined;
  /** What its JSON says, as the endpoint declares it. */
  readonly json: unknown;
}

const STREAMED: Input = { bytes: undefined, json: undefined };

/** Reads, parses and checks the body. Throws or rejects with a Refusal, or with CallerGone. */
export function receiveBody(
  parts: HandleParts,
  exchange: Exchange,
  route: Route,
  params: Readonly<Record<string, string>>,
): Promise<Input> | Input {
  const { message, key } = exchange;
  const { body: declared } = route.endpoint;
  if (declared !== undefined) checkEncoding(message);
  if (declared?.kind === "bytes") {
    if (hasBody(message)) parts.admission.bodies.streamed(message, STREAM_SILENCE_MS_MAX);
    return STREAMED;
  }
  if (!hasBody(message)) return inputOf([], route, exchange, parts);
  const isUnseen = key !== undefined && declared !== undefined && isLarge(message, declared.maxBytes);
  const finding = isUnseen ? parts.findTarget(route.endpoint, params, key.tenantId) : undefined;
  const read = (): Promise<Input> =>
    readPieces(parts, exchange, route).then((it) => inputOf(it, route, exchange, parts));
  return finding === undefined ? read() : finding.then(read);
}

/** Bytes that are compressed for the way would be taken for JSON, or written to a file as they are. */
function checkEncoding({ headers }: IncomingMessage): void {
  const encoding = headers["content-encoding"]?.trim() ?? "";
  if (encoding === "" || encoding.toLowerCase() === "identity") return;
  const text =
    `the body has Content-Encoding ${JSON.stringify(encoding.slice(0, PARAMETER_CHARACTERS_MAX))}, which is not supported; send it without one: ` +
    "a compressed file as it is, anything else uncompressed";
  throw new Refusal("unsupported_encoding", text, { headers: { "accept-encoding": "identity" } });
}

/**
 * Larger than what arrives together with the head, mostly; a body of undeclared length counts as large. One
 * that is too large is not held, so nothing has to be found for it.
 */
function isLarge({ headers }: IncomingMessage, maxBytes = JSON_BODY_BYTES_MAX): boolean {
  if (headers["transfer-encoding"] !== undefined) return true;
  const length = Number(headers["content-length"] ?? 0);
  return length >= UNSEEN_BODY_BYTES_MAX && length <= maxBytes;
}

function readPieces(
  { admission }: HandleParts,
  exchange: Exchange,
  { endpoint: { body } }: Route,
): Promise<readonly Buffer[]> {
  const { message, key, node } = exchange;
  const share = admission.shareOf(key ?? node ?? { nodeId: null });
  exchange.share = share;
  const maxBytes = (body?.kind === "json" ? body.maxBytes : undefined) ?? JSON_BODY_BYTES_MAX;
  return readBody(message, { maxBytes, share, watch: admission.bodies });
}

/** Clients that always send JSON send an empty object where no body is needed. */
const saysNothing = (bytes: Buffer): boolean =>
  bytes.byteLength <= EMPTY_BYTES_MAX && /^\s*\{\s*\}\s*$/.test(bytes.toString("latin1"));

function inputOf(
  pieces: readonly Buffer[],
  { name, endpoint: { body: declared }, checkBody: check }: Route,
  { key, node, message }: Exchange,
  { admission, largeJson, nodeJson }: HandleParts,
): Promise<Input> | Input {
  // An endpoint without a declared body accepts and ignores one: clients send `{}`.
  if (declared?.kind !== "json") return { bytes: joined(pieces), json: undefined };
  const { schema, isOptional = false, longText = null, message: said = null } = declared;
  const size = pieces.reduce((sum, { byteLength }) => sum + byteLength, 0);
  if (node !== undefined && node.nodeId !== null) admission.chargeNode(node.nodeId, size);
  if (size < LARGE_JSON_BYTES) {
    const bytes = joined(pieces);
    if (said !== null && size > 0)
      return { bytes, json: saysNothing(bytes) ? undefined : readNodeMessage(said, bytes) };
    return { bytes, json: checkBody(parseJson(bytes), isOptional, check) };
  }
  // Under an idempotency key it is compared with another request's.
  const isDigested = message.headers["idempotency-key"] !== undefined;
  const order = { pieces, shape: { name, schema, isOptional, longText, message: said }, isDigested };
  const parsing = key === undefined ? nodeJson.parse(node?.nodeId ?? "", order) : largeJson.parse(key.tenantId, order);
  return parsing.then(({ body, digest }) => ({ bytes: Buffer.from(`sha256 ${digest}`), json: body }));
}

/**
 * The shape in which an endpoint is declared: everything about it except what it does.
 *
 * From these records come validation, the handlers' types, OpenAPI, the SDK's methods and the surface tests, so a
 * fact about an endpoint has one place.
 */
import type { ErrorCode } from "./errors.ts";
import type { TSchema } from "./schema.ts";
import type { Scope } from "./scopes.ts";

export type Method = "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS";

/**
 * Who may call: anyone; any valid key; a key with one of the scopes; a node with a join token (or its credential);
 * a node with its credential.
 */
export type Access = "public" | "anyKey" | readonly Scope[] | "joinToken" | "nodeCredential";

export type Body =
  | { readonly kind: "json"; readonly schema: TSchema; readonly isOptional?: true; readonly maxBytes?: number }
  /** Streamed to the handler, never held whole. */
  | { readonly kind: "bytes" };

export type Answer =
  | {
      readonly kind: "json";
      readonly schema: TSchema;
      readonly description?: string;
      /** The content type of a stream that answers in place of the JSON, when the caller asks for one. */
      readonly orStream?: string;
    }
  | { readonly kind: "empty"; readonly description?: string }
  /** Raw bytes, text or an event stream; `contentType` says which. */
  | {
      readonly kind: "stream";
      readonly contentType: string;
      readonly description?: string;
      /** The JSON that answers in place of the stream, when the caller asks for it. */
      readonly orJson?: TSchema;
      /** Headers of this answer, each with its meaning. */
      readonly headers?: Readonly<Record<string, string>>;
    };

export interface Endpoint {
  readonly method: Method;
  /** `{name}` is one path segment; a final `{name...}` is the rest of the path. */
  readonly path: string;
  /** Further paths that clients use for the same thing. */
  readonly aliases?: readonly string[];
  /** The family: first path segment after `/v1`, and the name of the folder that serves it. */
  readonly family: string;
  readonly summary: string;
  readonly description?: string;
  readonly access: Access;
  readonly query?: TSchema;
  readonly body?: Body;
  readonly answers: Readonly<Record<number, Answer>>;
  /** Refusals beyond those any endpoint may give (401, 402, 403, 405, 413, 429, 500). */
  readonly errors?: readonly ErrorCode[];
  /** Not in the specification; called by clients in daily use. */
  readonly isExtra?: true;
  /** Answered also while the database is away, to a key that has called it before. */
  readonly worksWithoutDatabase?: true;
  /** HEAD is described too. Every GET answers it; of these the headers alone are worth a request. */
  readonly hasHead?: true;
  /** Answered by a WebSocket upgrade. */
  readonly isUpgrade?: true;
  /**
   * Hands the request on to the machine `{id}`: what it answers goes back as it is, any status and an upgrade too. A connect
   * token of the machine opens it like a key.
   */
  readonly isBridge?: true;
  /** Part of the specification's description, but not a supported part of the service. */
  readonly isUnsupported?: true;
}

/** Keeps the literal types of a record while checking its shape. */
export const endpoint = <const E extends Endpoint>(record: E): E => record;

/** The names between braces of a path: `{id}` and `{rest...}` both count. */
export type PathParameters<Path extends string> = Path extends `${string}{${infer Name}}${infer Rest}`
  ? (Name extends `${infer Bare}...` ? Bare : Name) | PathParameters<Rest>
  : never;

/** The JSON bodies of the answers, ready to be put in a record: `json(MachineInfo)`. */
export const json = <T extends TSchema>(schema: T, description?: string) =>
  ({ kind: "json", schema, ...(description === undefined ? {} : { description }) }) as const;

/** JSON, or a stream where the caller asks for one. */
export const jsonOrStream = <T extends TSchema, const C extends string>(schema: T, orStream: C) =>
  ({ kind: "json", schema, orStream }) as const;

export const empty = (description?: string) =>
  ({ kind: "empty", ...(description === undefined ? {} : { description }) }) as const;

export const stream = <const C extends string>(contentType: C, description?: string) =>
  ({ kind: "stream", contentType, ...(description === undefined ? {} : { description }) }) as const;

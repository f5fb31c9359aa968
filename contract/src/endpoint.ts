/**
 * How an endpoint is declared: everything about it except its code.
 *
 * Validation, the handlers' types, OpenAPI, the SDK's methods and the surface tests are derived from these
 * records, so each fact about an endpoint is in one place.
 */
import type { ErrorCode } from "./errors.ts";
import type { TSchema } from "./schema.ts";
import type { Scope } from "./scopes.ts";

export type Method = "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS";

/**
 * Callers of the endpoint: anyone; any valid key; a key with one of the scopes; a node with a join token (or
 * its credential); a node with its credential.
 */
export type Access = "public" | "anyKey" | readonly Scope[] | "joinToken" | "nodeCredential";

export type Body =
  | {
      readonly kind: "json";
      readonly schema: TSchema;
      readonly isOptional?: true;
      readonly maxBytes?: number;
      /** The string of the body that may be long: the handler gets it as UTF-8 bytes when it is. */
      readonly longText?: string;
      /**
       * The message of the link that it is. Its reader repairs text that cannot be stored, and drops unknown
       * fields; any other body with such text is refused.
       */
      readonly message?: "heartbeat";
    }
  /** Streamed to the handler, never held whole. */
  | { readonly kind: "bytes" };

export type Answer =
  | {
      readonly kind: "json";
      readonly schema: TSchema;
      readonly description?: string;
      /**
       * The content type of a stream that replaces the JSON when the caller asks for it, and how:
       * `orStreamWhen`.
       */
      readonly orStream?: string;
      /** Such as "with `stream: true` in the body, the events of `exec/stream`". */
      readonly orStreamWhen?: string;
      /** Headers of this answer, each with its meaning. */
      readonly headers?: Readonly<Record<string, string>>;
    }
  | { readonly kind: "empty"; readonly description?: string }
  /** Raw bytes, text or an event stream; `contentType` says which. */
  | {
      readonly kind: "stream";
      readonly contentType: string;
      readonly description?: string;
      /** The JSON that replaces the stream when the caller asks for it. */
      readonly orJson?: TSchema;
      /** Headers of this answer, each with its meaning. */
      readonly headers?: Readonly<Record<string, string>>;
    };

export interface Endpoint {
  readonly method: Method;
  /** `{name}` is one path segment; a final `{name...}` is the rest of the path. */
  readonly path: string;
  /** Other paths of the same endpoint that clients use. */
  readonly aliases?: readonly string[];
  /** The family: first path segment after `/v1`, and the name of the folder that serves it. */
  readonly family: string;
  readonly summary: string;
  readonly description?: string;
  readonly access: Access;
  /** Scopes that the key needs besides one of `access`, because the answer gives what they give. */
  readonly alsoNeeds?: readonly Scope[];
  readonly query?: TSchema;
  readonly body?: Body;
  readonly answers: Readonly<Record<number, Answer>>;
  /** Refusals besides those that any endpoint may give (401, 402, 403, 405, 413, 429, 500). */
  readonly errors?: readonly ErrorCode[];
  /** Not in the specification, but called by existing clients. */
  readonly isExtra?: true;
  /** Also works while the database is unreachable, for a key that has called it before. */
  readonly worksWithoutDatabase?: true;
  /** HEAD is described too. Every GET supports it; for these, the headers alone are useful. */
  readonly hasHead?: true;
  /** Answered by a WebSocket upgrade. */
  readonly isUpgrade?: true;
  /**
   * Forwards the request to the machine `{id}`: the machine's answer is returned unchanged, with any status,
   * and upgrades too. A connect token of the machine is accepted like a key.
   */
  readonly isBridge?: true;
  /**
   * Part of the specification's description, but not a supported part of the service: answers have
   * `x-unsupported` with the family.
   */
  readonly isUnsupported?: true;
}

/** Keeps a record's literal types while its shape is checked. */
export const endpoint = <const E extends Endpoint>(record: E): E => record;

/** The parameter names in a path: `{id}` and `{rest...}`. */
export type PathParameters<Path extends string> = Path extends `${string}{${infer Name}}${infer Rest}`
  ? (Name extends `${infer Bare}...` ? Bare : Name) | PathParameters<Rest>
  : never;

/** The JSON body of an answer, for a record: `json(MachineInfo)`. */
export const json = <T extends TSchema>(schema: T, description?: string) =>
  ({ kind: "json", schema, ...(description === undefined ? {} : { description }) }) as const;

/** JSON, or a stream when the caller asks for it. */
export const jsonOrStream = <T extends TSchema, const C extends string>(schema: T, orStream: C, orStreamWhen: string) =>
  ({ kind: "json", schema, orStream, orStreamWhen }) as const;

export const empty = (description?: string) =>
  ({ kind: "empty", ...(description === undefined ? {} : { description }) }) as const;

export const stream = <const C extends string>(contentType: C, description?: string) =>
  ({ kind: "stream", contentType, ...(description === undefined ? {} : { description }) }) as const;

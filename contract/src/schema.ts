/**
 * The schema functions in which every request and answer of the API is declared.
 *
 * One value is validator, TypeScript type and JSON Schema: TypeBox builds plain JSON Schema objects, the
 * server compiles them with ajv, OpenAPI prints them.
 *
 * Always:
 * - An optional request field also accepts `null`, because existing clients send it for "absent".
 * - Unknown request fields are accepted and ignored, for the same reason.
 */
import { type Static, type TSchema, Type } from "typebox";
import { NO_NUL, TYPE_PATTERN } from "./patterns.ts";

export { type Static, type TSchema, Type };

/** An optional field of a request: absent, `null` (the same as absent) or a value. */
export const optional = <T extends TSchema>(schema: T) => Type.Optional(nullable(schema));

/** A value or `null`. */
export const nullable = <T extends TSchema>(schema: T) => Type.Union([schema, Type.Null()]);

/** A whole number from 0 to 2³¹−1. */
export const int32 = (options: { description?: string; minimum?: number; maximum?: number } = {}) =>
  Type.Integer({ format: "int32", minimum: 0, maximum: 2_147_483_647, ...options });

/** A whole number from 0 to 2⁵³−1, the largest that JSON readers in JavaScript keep exact. */
export const int64 = (options: { description?: string; minimum?: number; maximum?: number } = {}) =>
  Type.Integer({ format: "int64", minimum: 0, maximum: Number.MAX_SAFE_INTEGER, ...options });

/** An instant: RFC 3339, UTC, milliseconds (`2026-07-22T20:01:41.152Z`). */
export const timestamp = (description = "RFC 3339, UTC, with milliseconds") =>
  Type.String({ format: "date-time", description });

/** A string that the database can hold: PostgreSQL's text has no NUL. */
export const text = (
  options: { description?: string; minLength?: number; maxLength?: number; examples?: string[] } = {},
) => Type.String({ pattern: NO_NUL, ...options });

/**
 * Query of lists: a maximum number of items, after the last item of the previous page. A `Link` header with
 * `rel="next"` has the next page.
 */
export const pageQuery = {
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000 })),
  cursor: Type.Optional(text({ maxLength: 1024 })),
};
export const PageQuery = Type.Object(pageQuery);

/** The order of a list that can be read from its end as well. */
export const ORDERS = ["asc", "desc"] as const;

/** The tenant of lists and records: the caller's own, or another's for an operator. */
export const anotherTenant = Type.Optional(text({ maxLength: 64, description: "another tenant's; admin only" }));
export const TenantPageQuery = Type.Object({ ...pageQuery, tenantId: anotherTenant });

/** One of a closed list of strings. */
export const oneOf = <const T extends readonly string[]>(values: T, description?: string) =>
  Type.Unsafe<T[number]>({ type: "string", enum: [...values], ...(description === undefined ? {} : { description }) });

/** A type, or all that begin with its first part: `machine.started`, `machine.*`. */
export const typePattern = (description: string, examples: readonly string[]) =>
  Type.String({ pattern: TYPE_PATTERN, maxLength: 100, examples, description });

/** String keys to string values, such as an environment. */
export const stringMap = (description: string) =>
  Type.Unsafe<Record<string, string>>({
    type: "object",
    additionalProperties: { type: "string", pattern: NO_NUL },
    description,
  });

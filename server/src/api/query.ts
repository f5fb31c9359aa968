/**
 * Turns a query string into the typed object that an endpoint's query schema describes. Pure.
 *
 * Always: `true`, `false`, `1`, `0` are booleans; whole numbers are digits; a repeated parameter is an array
 * where the schema wants one and its last value elsewhere; unknown parameters are ignored. What cannot be
 * turned stays text, and the schema check says what was expected.
 */
import type { TSchema } from "@flotilla/contract/schema";

interface SchemaNode {
  readonly type?: string;
  readonly anyOf?: readonly SchemaNode[];
  readonly properties?: Readonly<Record<string, SchemaNode>>;
}

export function coerceQuery(schema: TSchema, search: URLSearchParams): Readonly<Record<string, unknown>> {
  const query: Record<string, unknown> = {};
  for (const [name, node] of Object.entries((schema as SchemaNode).properties ?? {})) {
    const values = search.getAll(name);
    const last = values.at(-1);
    if (last === undefined) continue;
    const type = node.type ?? node.anyOf?.find((branch) => branch.type !== "null")?.type;
    query[name] = type === "array" ? values : coerce(last, type);
  }
  return query;
}

function coerce(text: string, type: string | undefined): unknown {
  if (type === "boolean") {
    if (text === "true" || text === "1") return true;
    if (text === "false" || text === "0") return false;
  }
  if (type === "integer" && /^-?\d{1,16}$/.test(text)) return Number(text);
  if (type === "number" && /^-?\d+(\.\d+)?$/.test(text)) return Number(text);
  return text;
}

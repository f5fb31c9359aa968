/**
 * Makes requests from the contract: a path with its parameters filled in, and the smallest valid body. Pure.
 */
import type { Endpoint } from "@flotilla/contract/endpoint";

interface SchemaNode {
  readonly type?: string;
  readonly anyOf?: readonly SchemaNode[];
  readonly enum?: readonly unknown[];
  readonly examples?: readonly unknown[];
  readonly properties?: Readonly<Record<string, SchemaNode>>;
  readonly required?: readonly string[];
  readonly items?: SchemaNode;
  readonly minItems?: number;
  readonly minimum?: number;
}

/** The endpoint's path with every parameter replaced by `value`. */
export const samplePath = (path: string, value = "none-such"): string => path.replace(/\{[a-z_]+(\.\.\.)?\}/g, value);

/** A body that the schema accepts, without optional parts. */
export function sampleBody({ body }: Endpoint): unknown {
  return body?.kind === "json" ? sampleOf(body.schema) : undefined;
}

function sampleOf(node: SchemaNode): unknown {
  if (node.enum !== undefined) return node.enum[0];
  if (node.examples !== undefined) return node.examples[0];
  if (node.anyOf !== undefined) return node.anyOf[0] === undefined ? null : sampleOf(node.anyOf[0]);
  switch (node.type) {
    case "object": {
      const required = node.required ?? [];
      return Object.fromEntries(required.map((name) => [name, sampleOf(node.properties?.[name] ?? {})]));
    }
    case "array":
      return Array.from({ length: node.minItems ?? 0 }, () => sampleOf(node.items ?? {}));
    case "string":
      return "sample";
    case "boolean":
      return true;
    case "integer":
    case "number":
      return node.minimum ?? 0;
    default:
      return {};
  }
}

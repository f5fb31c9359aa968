/**
 * Compiles the contract's schemas and describes where a value does not match.
 *
 * Always: a schema is compiled when its first value comes, because all of them take a second and most servers never see
 * half of them; nothing is coerced, removed or filled in; unknown fields are accepted. The text names the path and what was
 * expected, with the schema's `examples` if it has any.
 */
import { patternMeaning } from "@flotilla/contract/patterns";
import type { TSchema } from "@flotilla/contract/schema";
import { Ajv, type ErrorObject, type ValidateFunction } from "ajv";

/** undefined: the value matches; otherwise the text says where it does not. */
export type Check = (value: unknown) => string | undefined;

// Formats are not checked: those in use (int32, date-time of answers) say no more than their other keywords.
const ajv = new Ajv({ strict: false, validateFormats: false, allErrors: false });

/** The check of a schema. Its first call takes some milliseconds more. */
export function compile(schema: TSchema): Check {
  let compiled: ValidateFunction | undefined;
  return (value) => {
    const validate = (compiled ??= ajv.compile(schema));
    return validate(value) ? undefined : describe(validate.errors ?? [], schema);
  };
}

function describe(errors: readonly ErrorObject[], schema: TSchema): string {
  // An optional field is a union with null; errors of the null branch are noise.
  const told = errors.filter((error) => error.keyword !== "anyOf" && error.params["type"] !== "null");
  const deepest = Math.max(...told.map((error) => depth(error)));
  const best = told.filter((error) => depth(error) === deepest);
  const first = best[0];
  if (first === undefined) return "it does not fit";
  const segments = first.instancePath.split("/").slice(1).map(unescapePointer);
  const field = first.keyword === "required" ? String(first.params["missingProperty"]) : undefined;
  const length = best.find((error) => error.keyword === "minItems");
  if (length !== undefined && best.some((error) => error.keyword === "type")) {
    // A string or a list: the value is a list, so the error is its length.
    const path = first.instancePath.split("/").slice(1).map(unescapePointer).join(".");
    return `${path}: ${expected(length)}${exampleFor(schema, first.instancePath.split("/").slice(1))}`;
  }
  const types = best.filter((error) => error.keyword === "type").map((error) => String(error.params["type"]));
  const misnamed =
    first.propertyName === undefined ? "" : `the name ${JSON.stringify(first.propertyName)} is not allowed: `;
  const expectation = misnamed + (types.length > 1 ? `expected ${types.join(" or ")}` : expected(first));
  const example = exampleFor(schema, field === undefined ? segments : [...segments, field]);
  const path = segments.length === 0 ? "" : `${segments.join(".")}: `;
  return `${path}${expectation}${example}`;
}

const depth = (error: ErrorObject): number => error.instancePath.split("/").length;

const unescapePointer = (segment: string): string => segment.replace(/~1/g, "/").replace(/~0/g, "~");

function expected(error: ErrorObject): string {
  const { params } = error;
  switch (error.keyword) {
    case "required":
      return `missing field \`${params["missingProperty"]}\``;
    case "type":
      return `expected ${params["type"]}`;
    case "enum":
      return `expected one of ${(params["allowedValues"] as unknown[]).join(", ")}`;
    case "minimum":
    case "maximum":
      return `expected a number ${params["comparison"]} ${params["limit"]}`;
    case "minLength":
    case "maxLength":
      return `expected ${error.keyword === "minLength" ? "at least" : "at most"} ${params["limit"]} characters`;
    case "minItems":
    case "maxItems":
    case "maxProperties":
      return `expected ${error.keyword === "minItems" ? "at least" : "at most"} ${params["limit"]} entries`;
    case "pattern":
      return `expected ${patternMeaning(String(params["pattern"]))}`;
    case "propertyNames":
      return `the name "${params["propertyName"]}" is not allowed`;
    default:
      return error.message ?? "it does not fit";
  }
}

interface SchemaNode {
  readonly properties?: Readonly<Record<string, SchemaNode>>;
  readonly items?: SchemaNode;
  readonly anyOf?: readonly SchemaNode[];
  readonly examples?: readonly unknown[];
}

/** The examples of the innermost schema on the way that has any. */
function exampleFor(schema: TSchema, segments: readonly string[]): string {
  let node: SchemaNode | undefined = schema;
  let found = "";
  for (const [index, segment] of segments.entries()) {
    const branches: readonly SchemaNode[] = node.anyOf ?? [node];
    node = branches.map((branch) => branch.properties?.[segment] ?? branch.items).find((item) => item !== undefined);
    if (node === undefined) break;
    if (node.examples === undefined) continue;
    const shown = node.examples.map((example) => JSON.stringify(example)).join(" or ");
    found = `; ${segments.slice(0, index + 1).join(".")} is such as ${shown}`;
  }
  return found;
}

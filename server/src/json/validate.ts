/**
 * Compiles the contract's schemas and describes where a value does not match.
 *
 * Always: a schema is compiled when its first value comes, because all of them take a second and most servers
 * never see half of them; nothing is coerced, removed or filled in; unknown fields are accepted. The text
 * names the path and what was expected, with the schema's `examples` if it has any.
 */
import { patternMeaning } from "@flotilla/contract/patterns";
import type { RefusalDetails, RefusalLimit } from "@flotilla/contract/refusal-details";
import type { TSchema } from "@flotilla/contract/schema";
import { Ajv, type ErrorObject, type ValidateFunction } from "ajv";

/** Where a value does not match, as text and as data. */
export interface Fault {
  readonly text: string;
  readonly details: RefusalDetails;
}

/** undefined: the value matches. */
export type Check = (value: unknown) => Fault | undefined;

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

function describe(errors: readonly ErrorObject[], schema: TSchema): Fault {
  // An optional field is a union with null; errors of the null branch are noise.
  const told = errors.filter((error) => error.keyword !== "anyOf" && error.params["type"] !== "null");
  const deepest = Math.max(...told.map((error) => depth(error)));
  const best = told.filter((error) => depth(error) === deepest);
  const length = best.find((error) => error.keyword === "minItems");
  const types = best.filter((error) => error.keyword === "type").map((error) => String(error.params["type"]));
  // A string or a list: the value is a list, so the error is its length.
  const first = length !== undefined && types.length > 0 ? length : best[0];
  if (first === undefined) return { text: "it does not fit", details: {} };
  const segments = first.instancePath.split("/").slice(1).map(unescapePointer);
  const whole = first.keyword === "required" ? [...segments, String(first.params["missingProperty"])] : segments;
  const expectation = types.length > 1 && first !== length ? expectedTypes(types) : expected(first);
  const path = segments.length === 0 ? "" : `${segments.join(".")}: `;
  const misnamed = first.propertyName === undefined ? null : JSON.stringify(first.propertyName);
  const wrong = misnamed === null ? "" : `the name ${misnamed} is not allowed: `;
  return {
    text: `${path}${wrong}${expectation.text}${exampleFor(schema, whole)}`,
    details: whole.length === 0 ? {} : detailsOf(whole.join("."), expectation, misnamed),
  };
}

/** `misnamed`: a name inside the field that is not allowed. */
function detailsOf(field: string, { must, limit }: Expectation, misnamed: string | null): RefusalDetails {
  if (misnamed !== null) return { field, must: `not have the name ${misnamed}: a name must ${must}` };
  return { field, must, ...(limit === undefined ? {} : { limit }) };
}

const depth = (error: ErrorObject): number => error.instancePath.split("/").length;

const unescapePointer = (segment: string): string => segment.replace(/~1/g, "/").replace(/~0/g, "~");

interface Expectation {
  readonly text: string;
  /** Read after the name of the field. */
  readonly must: string;
  readonly limit?: RefusalLimit;
}

const BOUNDS = { "<=": "at most", ">=": "at least", "<": "below", ">": "above" } as const;

const KINDS: Readonly<Record<string, string>> = {
  array: "a list",
  boolean: "true or false",
  integer: "a whole number",
  number: "a number",
  object: "an object",
  string: "a string",
};

function expected({ keyword, params, message }: ErrorObject): Expectation {
  switch (keyword) {
    case "required":
      return { text: `missing field \`${params["missingProperty"]}\``, must: "be given" };
    case "type":
      return expectedTypes([String(params["type"])]);
    case "enum":
      return expectedIs(`one of ${(params["allowedValues"] as unknown[]).join(", ")}`);
    case "minimum":
    case "maximum":
      return expectedNumber(params["comparison"] as RefusalLimit["bound"], Number(params["limit"]));
    case "minLength":
    case "maxLength":
      return expectedLength("characters", keyword === "minLength" ? ">=" : "<=", Number(params["limit"]));
    case "minItems":
    case "maxItems":
    case "maxProperties":
      return expectedLength("entries", keyword === "minItems" ? ">=" : "<=", Number(params["limit"]));
    case "pattern":
      return expectedIs(patternMeaning(String(params["pattern"])));
    default:
      return { text: message ?? "it does not fit", must: `fit its schema (${keyword})` };
  }
}

const expectedIs = (what: string): Expectation => ({ text: `expected ${what}`, must: `be ${what}` });

const expectedTypes = (types: readonly string[]): Expectation => ({
  text: `expected ${types.join(" or ")}`,
  must: `be ${types.map((type) => KINDS[type] ?? type).join(" or ")}`,
});

const expectedNumber = (bound: RefusalLimit["bound"], value: number): Expectation => ({
  text: `expected a number ${bound} ${value}`,
  must: `be ${BOUNDS[bound]} ${value}`,
  limit: { of: "value", bound, value },
});

function expectedLength(of: "characters" | "entries", bound: "<=" | ">=", value: number): Expectation {
  const amount = `${BOUNDS[bound]} ${value} ${of}`;
  const must = bound === ">=" && value === 1 ? "not be empty" : `have ${amount}`;
  return { text: `expected ${amount}`, must, limit: { of, bound, value } };
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

/**
 * Prints the readers of the link's messages from the schemas in contract/src/link: one function for each
 * message, which returns a new value of its type or throws InvalidMessage. Runs under `npm run golden`.
 *
 * The printed code calls the steps of contract/src/link/read.ts and imports no package, because the node
 * agent has none. ajv's standalone code would need ajv at run time, and it can neither cut a text nor clamp a
 * number.
 *
 * Always: the same schemas give the same text; a keyword that the printer does not know is an error.
 */
import * as errors from "@flotilla/contract/link/errors";
import * as files from "@flotilla/contract/link/files";
import * as images from "@flotilla/contract/link/images";
import * as machines from "@flotilla/contract/link/machines";
import * as membership from "@flotilla/contract/link/membership";
import * as moves from "@flotilla/contract/link/moves";
import * as packages from "@flotilla/contract/link/packages";
import * as points from "@flotilla/contract/link/points";
import * as reports from "@flotilla/contract/link/reports";
import * as runs from "@flotilla/contract/link/runs";
import * as streams from "@flotilla/contract/link/streams";
import { formatted } from "./formatted.ts";

const FILES = { membership, machines, runs, reports, images, streams, files, moves, points, packages, errors } as const;

/** The part of JSON Schema that the schemas use, and our keyword `choices`. */
interface Schema {
  readonly type?: string;
  readonly anyOf?: readonly Schema[];
  readonly items?: Schema;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly enum?: readonly string[];
  readonly const?: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly maxItems?: number;
  readonly maxLength?: number;
  readonly pattern?: string;
  readonly startsWith?: string;
  readonly clampTo?: number;
  readonly clipTo?: number;
  readonly bytesMax?: number;
  readonly environmentBytesMax?: number;
  readonly factsMax?: number;
  readonly otherwise?: string | null;
  readonly default?: unknown;
}

/** The generated text besides the current function. */
interface Output {
  /** The text of a schema → its name. */
  readonly names: ReadonlyMap<string, string>;
  readonly constants: Map<string, string>;
  readonly functions: string[];
  readonly steps: Set<string>;
}

/** The whole text of contract/src/link/generated.ts. */
export function generateLink(): string {
  const messages = Object.entries(FILES).flatMap(([file, exports]) =>
    Object.entries(exports).flatMap(([name, value]) => (isSchema(value) ? [{ file, name, schema: value }] : [])),
  );
  const names = new Map(messages.map(({ name, schema }) => [JSON.stringify(schema), name]));
  const output: Output = { names, constants: new Map(), functions: [], steps: new Set() };
  for (const { name, schema } of messages) {
    const type = schema.items === undefined ? name : `${nameOf(schema.items, output)}[]`;
    output.functions.push(functionText(`read${name}`, name, schema, output, `: ${type}`, "export "));
  }
  const imports = Object.keys(FILES).map((file) => {
    const types = messages.filter((message) => message.file === file && message.schema.items === undefined);
    return `import type { ${types.map(({ name }) => name).join(", ")} } from "./${file}.ts";`;
  });
  const constants = [...output.constants].map(([name, text]) => `const ${name} = ${text};`);
  return formatted(`/**
 * Printed by scripts/generate-link.ts from the schemas beside it; not edited by hand: change those and run
 * \`npm run golden\`. Reads the messages of the link as read.ts says.
 */
${imports.join("\n")}
import { ${[...output.steps].toSorted().join(", ")} } from "./read.ts";

${constants.join("\n")}

${output.functions.join("\n\n")}
`);
}

function isSchema(value: unknown): value is Schema {
  const schema = value as Schema | null;
  return typeof schema === "object" && schema !== null && (schema.type !== undefined || schema.anyOf !== undefined);
}

function nameOf(schema: Schema, { names }: Output): string {
  const name = names.get(JSON.stringify(schema));
  if (name === undefined) throw new Error("give the item of a list that is a message a name");
  return name;
}

/** A function that reads a value of the schema. `where`: how it names the place. */
function functionText(
  name: string,
  where: string,
  schema: Schema,
  output: Output,
  returns: string,
  isExported: "export " | "",
): string {
  return `${isExported}function ${name}(value: unknown)${returns} {\n${bodyText(where, schema, output)}\n}`;
}

function bodyText(where: string, schema: Schema, output: Output): string {
  if (schema.anyOf !== undefined) return unionText(where, schema.anyOf, output);
  if (schema.properties === undefined) return `return ${valueText("value", where, schema, output)};`;
  output.steps.add("record");
  return `const fields = record(value, ${quoted(where)});\nreturn ${objectText(where, schema, output)};`;
}

/** A union by `kind`. */
function unionText(where: string, variants: readonly Schema[], output: Output): string {
  output.steps.add("record");
  output.steps.add("oneOf");
  const kinds = variants.map((variant) => variant.properties?.["kind"]?.const);
  if (kinds.some((kind) => kind === undefined)) throw new Error(`${where}: a choice between messages needs a kind`);
  const cases = variants.map((variant, index) => {
    const made = objectText(where, variant, output);
    return `case ${quoted(kinds[index] ?? "")}: return ${made};`;
  });
  const choices = constant(`${upper(where)}_KIND`, kinds, output);
  return `const fields = record(value, ${quoted(where)});
    switch (oneOf(fields["kind"], ${quoted(`${where}.kind`)}, ${choices})) { ${cases.join("\n")} }`;
}

function objectText(where: string, { properties = {}, required = [] }: Schema, output: Output): string {
  const lines = Object.entries(properties).map(([name, schema]) => {
    const field = `fields[${quoted(name)}]`;
    if (schema.const !== undefined) return `${name}: ${quoted(schema.const)},`;
    const read = valueText(field, `${where}.${name}`, schema, output);
    return required.includes(name)
      ? `${name}: ${read},`
      : `...(${field} === undefined ? undefined : { ${name}: ${read} }),`;
  });
  return `{\n${lines.join("\n")}\n}`;
}

/** An expression that reads `value`. */
function valueText(value: string, where: string, schema: Schema, output: Output): string {
  const isNullable = schema.anyOf?.some(({ type }) => type === "null") === true;
  if (isNullable) {
    const [inner] = schema.anyOf?.filter(({ type }) => type !== "null") ?? [];
    if (inner === undefined) throw new Error(`${where}: nothing but null`);
    return `${value} === undefined || ${value} === null ? null : ${valueText(value, where, inner, output)}`;
  }
  if (schema.type === "boolean") return `${value} === true`;
  const given = schema.default === undefined ? value : `${value} ?? ${JSON.stringify(schema.default)}`;
  if (schema.type === "array") return listText(given, where, schema, output);
  const name = output.names.get(JSON.stringify(schema));
  if (name !== undefined) return `read${name}(${given})`;
  if (schema.properties !== undefined) return `${partFunction(where, schema, output)}(${given})`;
  return scalarText(given, where, schema, output);
}

function scalarText(value: string, where: string, schema: Schema, output: Output): string {
  const { minimum, maximum, maxLength, clampTo, clipTo } = schema;
  const place = quoted(where);
  if (schema.enum !== undefined) {
    const choices = constant(upper(where), schema.enum, output);
    if (schema.otherwise === undefined) return step(output, "oneOf", value, place, choices);
    return step(output, "oneOfOr", value, choices, JSON.stringify(schema.otherwise));
  }
  if (clampTo !== undefined)
    return step(output, schema.type === "integer" ? "count" : "measure", value, place, clampTo);
  if (minimum !== undefined && maximum !== undefined) return step(output, "whole", value, place, minimum, maximum);
  if (clipTo !== undefined) return step(output, "clipped", value, place, clipTo);
  if (schema.pattern !== undefined) {
    const pattern = new RegExp(schema.pattern).toString();
    const name = `${upper(where)}_PATTERN`;
    output.constants.set(name, pattern);
    return step(output, "matching", value, place, name);
  }
  if (schema.startsWith !== undefined)
    return step(output, "textFrom", value, place, quoted(schema.startsWith), maxLength ?? 0);
  if (maxLength !== undefined) return step(output, "text", value, place, maxLength);
  if (schema.factsMax !== undefined) return step(output, "facts", value, place, schema.factsMax);
  if (schema.environmentBytesMax !== undefined)
    return step(output, "environment", value, place, schema.environmentBytesMax);
  throw new Error(`${where}: the printer does not know this schema: ${JSON.stringify(schema)}`);
}

function listText(value: string, where: string, schema: Schema, output: Output): string {
  const { items, maxItems, clipTo, bytesMax } = schema;
  const max = maxItems ?? clipTo;
  if (items === undefined || max === undefined) throw new Error(`${where}: a list without items or a bound`);
  const read = items.properties === undefined ? null : itemFunction(where, items, output);
  const reader = read ?? `(item) => ${valueText("item", where, items, output)}`;
  const text = step(output, maxItems === undefined ? "clippedList" : "list", value, quoted(where), max, reader);
  return bytesMax === undefined ? text : step(output, "bytesAtMost", text, quoted(where), bytesMax);
}

function itemFunction(where: string, items: Schema, output: Output): string {
  const name = output.names.get(JSON.stringify(items));
  return name === undefined ? partFunction(where, items, output) : `read${name}`;
}

/** The name of a function that reads an unnamed object. */
function partFunction(where: string, schema: Schema, output: Output): string {
  const name = `part${where.replace(/(?:^|\.)(\w)/g, (_, letter: string) => letter.toUpperCase())}`;
  output.functions.push(functionText(name, where, schema, output, "", ""));
  return name;
}

function constant(name: string, choices: readonly unknown[], output: Output): string {
  const text = `${JSON.stringify(choices)} as const`;
  output.constants.set(name, text);
  return name;
}

function step(output: Output, name: string, ...values: readonly (string | number)[]): string {
  output.steps.add(name);
  return `${name}(${values.join(", ")})`;
}

const quoted = (value: string): string => JSON.stringify(value);

/** `MachineSpec.image.arch` → `MACHINE_SPEC_IMAGE_ARCH`. */
const upper = (where: string): string =>
  where
    .replace(/([a-z])([A-Z])/g, "$1_$2")
    .replaceAll(".", "_")
    .toUpperCase();

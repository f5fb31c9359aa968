/**
 * Generates the SDK's methods and types from the contract: one method for each endpoint, one TypeScript type for each
 * shape. Runs under `npm run golden`; a test compares the committed file with the generated one.
 *
 * Always:
 * - The same contract gives the same text, byte for byte.
 * - The generated file contains types and paths only, no validation, because the server validates.
 * - A shape that the contract exports keeps its name; any other is named after its endpoint.
 */
import { readdirSync } from "node:fs";
import type { Endpoint } from "@flotilla/contract/endpoint";
import { endpointList } from "@flotilla/contract/endpoints";
import { formatted } from "./formatted.ts";

/** The part of JSON Schema that the contract uses. */
interface Schema {
  readonly type?: string;
  readonly description?: string;
  readonly enum?: readonly string[];
  readonly anyOf?: readonly Schema[];
  readonly items?: Schema;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: Schema;
}

/** The whole text of sdk/src/generated.ts. */
export async function generateSdk(): Promise<string> {
  const names = await readNames();
  const methods = endpointList.map(([name, endpoint]) => printMethod(name, endpoint, names)).join("\n");
  const types = [...names.all]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, schema]) => printType(name, schema, names));
  const text = `/**
 * Printed by scripts/generate-sdk.ts from the contract; not edited by hand: change contract/src and run
 * \`npm run golden\`.
 * One method for each endpoint, to which client.ts gives the transport, and the shapes of requests and answers.
 */
import { type ApiCall, type BytesBody, type CallOptions, rest, segment } from "./call.ts";

export abstract class Methods {
  protected abstract call<T>(call: ApiCall, options: CallOptions<unknown>): Promise<T>;
  protected abstract openSocket(path: string, options: CallOptions<unknown>): WebSocket;

${methods}}

${types.join("\n")}`;
  return formatted(text);
}

interface Names {
  /** Every named shape. */
  readonly all: Map<string, Schema>;
  /** A shape's text → its name: equal shapes share one name, however often the contract copies them. */
  readonly byText: Map<string, string>;
}

/** Collects the contract's exported shapes, then names the endpoints' unnamed ones. */
async function readNames(): Promise<Names> {
  const names: Names = { all: new Map(), byText: new Map() };
  const folder = new URL("../contract/src/", import.meta.url);
  for (const file of readdirSync(folder)
    .filter((name) => name.endsWith(".ts") && !name.endsWith(".test.ts"))
    .sort()) {
    const module = (await import(new URL(file, folder).href)) as Record<string, unknown>;
    for (const [name, value] of Object.entries(module)) if (isShape(value)) give(names, name, value);
  }
  for (const [name, endpoint] of endpointList) {
    const pascal = name.slice(0, 1).toUpperCase() + name.slice(1);
    if (endpoint.body?.kind === "json") give(names, `${pascal}Request`, endpoint.body.schema);
    if (endpoint.query !== undefined) give(names, `${pascal}Query`, endpoint.query);
    for (const answer of Object.values(endpoint.answers)) {
      if (answer.kind === "json") give(names, `${pascal}Answer`, answer.schema);
    }
  }
  return names;
}

/** Whether a value exported by the contract is an object shape, or a union of some. */
function isShape(value: unknown): value is Schema {
  const schema = value as Schema | null;
  if (typeof schema !== "object" || schema === null) return false;
  return schema.properties !== undefined || (Array.isArray(schema.anyOf) && schema.anyOf.every(isShape));
}

function give(names: Names, name: string, schema: Schema): void {
  const text = JSON.stringify(schema);
  if (!isShape(schema) || names.byText.has(text)) return;
  if (names.all.has(name)) throw new Error(`two different shapes are called ${name}; rename one in contract/src`);
  names.all.set(name, schema);
  names.byText.set(text, name);
}

function printType(name: string, schema: Schema, names: Names): string {
  const text = print(schema, names, { isNamed: true });
  return schema.properties === undefined ? `export type ${name} = ${text};\n` : `export interface ${name} ${text}\n`;
}

function print(schema: Schema, names: Names, options: { isNamed?: true } = {}): string {
  const name = options.isNamed ? undefined : names.byText.get(JSON.stringify(schema));
  if (name !== undefined) return name;
  if (schema.anyOf !== undefined) return schema.anyOf.map((item) => print(item, names)).join(" | ");
  if (schema.enum !== undefined) return schema.enum.map((item) => JSON.stringify(item)).join(" | ");
  if (schema.items !== undefined) {
    const item = print(schema.items, names);
    return item.includes(" ") ? `readonly (${item})[]` : `readonly ${item}[]`;
  }
  if (schema.properties !== undefined) return printProperties(schema, schema.properties, names);
  if (schema.additionalProperties !== undefined) return `Record<string, ${print(schema.additionalProperties, names)}>`;
  if (schema.type === "integer") return "number";
  if (schema.type === "string" || schema.type === "number" || schema.type === "boolean" || schema.type === "null")
    return schema.type;
  if (schema.type === undefined) return "unknown";
  throw new Error(`the SDK's printer does not know this schema: ${JSON.stringify(schema)}`);
}

function printProperties(schema: Schema, properties: Readonly<Record<string, Schema>>, names: Names): string {
  const lines = Object.entries(properties).map(([name, property]) => {
    const isRequired = schema.required?.includes(name) === true;
    const type = print(property, names) + (isRequired ? "" : " | undefined");
    const description = property.description ?? property.anyOf?.find((item) => item.description)?.description;
    return `${description ? comment([description]) : ""}${name}${isRequired ? "" : "?"}: ${type};`;
  });
  return `{\n${lines.join("\n")}\n}`;
}

function printMethod(name: string, endpoint: Endpoint, names: Names): string {
  const parameters: string[] = [];
  const path = endpoint.path.replace(/\{(\w+)(\.\.\.)?\}/g, (_, word: string, dots?: string) => {
    const parameter = word.replace(/_(\w)/g, (_all, letter: string) => letter.toUpperCase());
    parameters.push(`${parameter}: ${parameter === "port" ? "number" : "string"}`);
    return `\${${dots ? "rest" : "segment"}(${parameter})}`;
  });
  const pathText = parameters.length === 0 ? JSON.stringify(path) : `\`${path}\``;
  const query = endpoint.query === undefined ? "" : `<${print(endpoint.query, names)}>`;
  const head = comment(describe(endpoint));
  if (endpoint.isUpgrade) {
    parameters.push(`options: CallOptions${query} = {}`);
    return `${head}${name}(${parameters.join(", ")}): WebSocket { return this.openSocket(${pathText}, options); }\n`;
  }
  const body = endpoint.body;
  if (body?.kind === "json") {
    parameters.push(`body${body.isOptional ? "?" : ""}: ${print(body.schema, names)}`);
  } else if (body?.kind === "bytes") parameters.push("body: BytesBody");
  parameters.push(`options: CallOptions${query} = {}`);
  const sent = body === undefined ? "" : body.kind === "json" ? "json: body, " : "bytes: body, ";
  const { kind, type } = answerOf(endpoint, names);
  return `${head}${name}(${parameters.join(", ")}): Promise<${type}> {
    return this.call({ method: "${endpoint.method}", path: ${pathText}, ${sent}answer: "${kind}" }, options);
  }\n`;
}

function describe(endpoint: Endpoint): string[] {
  const access = endpoint.access;
  const who = typeof access === "string" ? ACCESS_TEXTS[access] : `needs scope ${access.join(" or ")}`;
  const refusals = endpoint.errors === undefined ? [] : [`Refuses with ${endpoint.errors.join(", ")}.`];
  return [
    `${endpoint.summary}.`,
    ...(endpoint.description === undefined ? [] : ["", endpoint.description]),
    "",
    `\`${endpoint.method} ${endpoint.path}\`; ${who}.`,
    ...refusals,
  ];
}

const ACCESS_TEXTS = {
  public: "needs no key",
  anyKey: "needs any key",
  joinToken: "needs a join token",
  nodeCredential: "needs a node's credential",
} as const;

function answerOf(endpoint: Endpoint, names: Names): { kind: "json" | "empty" | "stream"; type: string } {
  const answers = Object.values(endpoint.answers);
  if (answers.length === 0) return { kind: "empty", type: "never" };
  if (answers.some((answer) => answer.kind === "stream")) return { kind: "stream", type: "Response" };
  const types = answers.flatMap((answer) => (answer.kind === "json" ? [print(answer.schema as Schema, names)] : []));
  if (types.length === 0) return { kind: "empty", type: "void" };
  const isSometimesEmpty = types.length < answers.length;
  return { kind: "json", type: [...new Set([...types, ...(isSometimesEmpty ? ["undefined"] : [])])].join(" | ") };
}

/** A doc comment, its lines broken at 116 columns. */
function comment(paragraphs: readonly string[]): string {
  const lines = paragraphs.flatMap((paragraph) => wrap(paragraph.replaceAll("*/", "* /"), 112));
  return lines.length === 1
    ? `/** ${lines[0]} */\n`
    : `/**\n${lines.map((line) => ` * ${line}`.trimEnd()).join("\n")}\n */\n`;
}

function wrap(text: string, width: number): string[] {
  const lines = [""];
  for (const word of text.split(" ")) {
    const line = lines.at(-1) ?? "";
    if (line !== "" && line.length + 1 + word.length > width) lines.push(word);
    else lines[lines.length - 1] = line === "" ? word : `${line} ${word}`;
  }
  return lines;
}

/**
 * Generates the SDK's methods and types from the contract: one method for each endpoint, one TypeScript type
 * for each shape. Runs under `npm run golden`; a test compares the committed file with the generated one.
 *
 * Always:
 * - The same contract gives the same text, byte for byte.
 * - The generated file contains types and paths only, no validation, because the server validates.
 * - Types have the names of contract/src/shapes.ts.
 */
import { ADVICE } from "@flotilla/contract/advice";
import type { Endpoint } from "@flotilla/contract/endpoint";
import { endpointList } from "@flotilla/contract/endpoints";
import { shapes } from "@flotilla/contract/shapes";
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
export function generateSdk(): string {
  const methods = endpointList.map(([name, endpoint]) => printMethod(name, endpoint)).join("\n");
  const types = [...shapes.byName]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, schema]) => printType(name, schema as Schema));
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

/** The whole text of sdk/src/advice.ts. */
export function generateAdvice(): string {
  return formatted(`/**
 * Printed by scripts/generate-sdk.ts from the contract; not edited by hand: change contract/src and run
 * \`npm run golden\`.
 * The codes of the API's refusals, each with what its caller can do.
 */
export const ADVICE = ${JSON.stringify(ADVICE)} as const;

/** The server's code of a refusal. */
export type ErrorCode = keyof typeof ADVICE;
`);
}

function printType(name: string, schema: Schema): string {
  const text = print(schema, { isNamed: true });
  return schema.properties === undefined ? `export type ${name} = ${text};\n` : `export interface ${name} ${text}\n`;
}

function print(schema: Schema, options: { isNamed?: true } = {}): string {
  const name = options.isNamed ? undefined : shapes.nameOf(schema);
  if (name !== undefined) return name;
  if (schema.anyOf !== undefined) return schema.anyOf.map((item) => print(item)).join(" | ");
  if (schema.enum !== undefined) return schema.enum.map((item) => JSON.stringify(item)).join(" | ");
  if (schema.items !== undefined) {
    const item = print(schema.items);
    return item.includes(" ") ? `readonly (${item})[]` : `readonly ${item}[]`;
  }
  if (schema.properties !== undefined) return printProperties(schema, schema.properties);
  if (schema.additionalProperties !== undefined) return `Record<string, ${print(schema.additionalProperties)}>`;
  if (schema.type === "integer") return "number";
  if (schema.type === "string" || schema.type === "number" || schema.type === "boolean" || schema.type === "null")
    return schema.type;
  if (schema.type === undefined) return "unknown";
  throw new Error(`the SDK's printer does not know this schema: ${JSON.stringify(schema)}`);
}

function printProperties(schema: Schema, properties: Readonly<Record<string, Schema>>): string {
  const lines = Object.entries(properties).map(([name, property]) => {
    const isRequired = schema.required?.includes(name) === true;
    const type = print(property) + (isRequired ? "" : " | undefined");
    const description = property.description ?? property.anyOf?.find((item) => item.description)?.description;
    return `${description ? comment([description]) : ""}${name}${isRequired ? "" : "?"}: ${type};`;
  });
  return `{\n${lines.join("\n")}\n}`;
}

function printMethod(name: string, endpoint: Endpoint): string {
  const parameters: string[] = [];
  const path = endpoint.path.replace(/\{(\w+)(\.\.\.)?\}/g, (_, word: string, dots?: string) => {
    const parameter = word.replace(/_(\w)/g, (_all, letter: string) => letter.toUpperCase());
    parameters.push(`${parameter}: ${parameter === "port" ? "number" : "string"}`);
    return `\${${dots ? "rest" : "segment"}(${parameter})}`;
  });
  const pathText = parameters.length === 0 ? JSON.stringify(path) : `\`${path}\``;
  const query = endpoint.query === undefined ? "" : `<${print(endpoint.query)}>`;
  const head = comment(describe(endpoint));
  if (endpoint.isUpgrade) {
    parameters.push(`options: CallOptions${query} = {}`);
    return `${head}${name}(${parameters.join(", ")}): WebSocket { return this.openSocket(${pathText}, options); }\n`;
  }
  const body = endpoint.body;
  if (body?.kind === "json") {
    parameters.push(`body${body.isOptional ? "?" : ""}: ${print(body.schema)}`);
  } else if (body?.kind === "bytes") parameters.push("body: BytesBody");
  parameters.push(`options: CallOptions${query} = {}`);
  const sent = body === undefined ? "" : body.kind === "json" ? "json: body, " : "bytes: body, ";
  const { kind, type } = answerOf(endpoint);
  return `${head}${name}(${parameters.join(", ")}): Promise<${type}> {
    return this.call({ method: "${endpoint.method}", path: ${pathText}, ${sent}answer: "${kind}" }, options);
  }\n`;
}

function describe(endpoint: Endpoint): string[] {
  const { access, alsoNeeds = [] } = endpoint;
  const also = alsoNeeds.map((scope) => ` and ${scope}`).join("");
  const who = typeof access === "string" ? ACCESS_TEXTS[access] : `needs scope ${access.join(" or ")}${also}`;
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

function answerOf(endpoint: Endpoint): { kind: "json" | "empty" | "stream"; type: string } {
  const answers = Object.values(endpoint.answers);
  if (answers.length === 0) return { kind: "empty", type: "never" };
  if (answers.some((answer) => answer.kind === "stream")) return { kind: "stream", type: "Response" };
  const types = answers.flatMap((answer) => (answer.kind === "json" ? [print(answer.schema as Schema)] : []));
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

/**
 * Prints the Python SDK from the contract: a method for each endpoint, for callers that wait and for those
 * that await; a TypedDict for each shape; an exception for each code. Runs under `npm run golden`, and the
 * static checks compare.
 *
 * Always:
 * - The same contract gives the same text, byte for byte.
 * - Keys of shapes are those of the API. Names of methods and parameters are Python's: `list_machines`,
 *   `keep_memory`.
 * - The text is read by Python 3.9 and later: types are strings there, and only what runs uses typing's own.
 */
import { ADVICE } from "@flotilla/contract/advice";
import type { Endpoint } from "@flotilla/contract/endpoint";
import { endpointList } from "@flotilla/contract/endpoints";
import { ERRORS, type ErrorCode } from "@flotilla/contract/errors";
import { shapes } from "@flotilla/contract/shapes";

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

const KEYWORDS = new Set(
  "False None True and as assert async await break class continue def del elif else except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield".split(
    " ",
  ),
);
const LINE_CHARACTERS = 100;
const HEAD = `"""Printed by scripts/generate-python.ts from the contract; not edited by hand.

Change contract/src and run \`npm run golden\`.
"""
`;

const snake = (name: string): string => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
const safe = (name: string): string => (KEYWORDS.has(name) ? `${name}_` : name);
const pascal = (name: string): string =>
  name.replace(/(^|_)(\w)/g, (_, _start, letter: string) => letter.toUpperCase());

/** The whole text of sdk-python/flotilla/types.py. */
export function generatePythonTypes(): string {
  const printer = new TypePrinter();
  for (const [name, schema] of [...shapes.byName].sort(([a], [b]) => (a < b ? -1 : 1))) printer.add(name, schema);
  return `${HEAD}
from __future__ import annotations

from typing import Any, Dict, List, Literal, TypedDict, Union

${printer.text()}`;
}

/** Collects definitions. An object inside of another has a name made of the names on the way to it. */
class TypePrinter {
  readonly #classes: string[] = [];
  readonly #aliases: string[] = [];

  /** What other definitions are made of comes first, because aliases are read in order. */
  text(): string {
    return `${[...this.#classes, ...this.#aliases].join("\n\n")}\n`;
  }

  add(name: string, schema: Schema): void {
    if (schema.properties !== undefined) this.#addClass(name, schema, schema.properties);
    else this.#aliases.push(`${name} = ${this.#print(schema, name, { isNamed: true, isRun: true })}\n`);
  }

  #addClass(name: string, schema: Schema, properties: Readonly<Record<string, Schema>>): void {
    const entries = Object.entries(properties);
    const isRequired = (key: string): boolean => schema.required?.includes(key) === true;
    const parts = {
      required: entries.filter(([key]) => isRequired(key)),
      rest: entries.filter(([key]) => !isRequired(key)),
    };
    if (entries.some(([key]) => KEYWORDS.has(key))) return this.#addByCall(name, parts);
    const fields = (list: typeof entries): string =>
      list.length === 0
        ? "    pass\n"
        : list
            .map(([key, value]) => `${describe(value, "    ")}    ${key}: ${this.#print(value, name + pascal(key))}\n`)
            .join("");
    if (parts.rest.length === 0 || parts.required.length === 0) {
      const total = parts.rest.length === 0 ? "" : ", total=False";
      this.#classes.push(`class ${name}(TypedDict${total}):\n${fields(entries)}`);
      return;
    }
    this.#classes.push(`class _${name}(TypedDict):\n${fields(parts.required)}`);
    this.#classes.push(`class ${name}(_${name}, total=False):\n${fields(parts.rest)}`);
  }

  /** A class cannot have a field called \`from\`. */
  #addByCall(name: string, parts: { required: [string, Schema][]; rest: [string, Schema][] }): void {
    const fields = (list: [string, Schema][]): string =>
      list
        .map(([key, value]) => `        "${key}": "${this.#print(value, name + pascal(key)).replaceAll('"', "'")}",\n`)
        .join("");
    if (parts.rest.length === 0) {
      this.#classes.push(`${name} = TypedDict(\n    "${name}",\n    {\n${fields(parts.required)}    },\n)\n`);
      return;
    }
    const base = `_${name}`;
    const total =
      parts.required.length === 0
        ? ""
        : `${base} = TypedDict(\n    "${base}",\n    {\n${fields(parts.required)}    },\n)\n\n\n`;
    if (total === "") {
      this.#classes.push(
        `${name} = TypedDict(\n    "${name}",\n    {\n${fields(parts.rest)}    },\n    total=False,\n)\n`,
      );
      return;
    }
    const more = parts.rest.map(([key, value]) => `    ${key}: ${this.#print(value, name + pascal(key))}\n`).join("");
    this.#classes.push(`${total}class ${name}(${base}, total=False):\n${more}`);
  }

  #print(schema: Schema, path: string, { isNamed = false, isRun = false } = {}): string {
    const name = isNamed ? undefined : shapes.nameOf(schema);
    if (name !== undefined) return isRun ? `"${name}"` : name;
    if (schema.anyOf !== undefined) {
      const all = [
        ...new Set(schema.anyOf.map((item, index) => this.#print(item, `${path}${index || ""}`, { isRun }))),
      ];
      return isRun ? `Union[${all.join(", ")}]` : all.join(" | ");
    }
    if (schema.enum !== undefined) return `Literal[${schema.enum.map((item) => JSON.stringify(item)).join(", ")}]`;
    if (schema.items !== undefined) return `List[${this.#print(schema.items, `${path}Item`, { isRun })}]`;
    if (schema.properties !== undefined) {
      this.#addClass(path, schema, schema.properties);
      return isRun ? `"${path}"` : path;
    }
    if (schema.additionalProperties !== undefined)
      return `Dict[str, ${this.#print(schema.additionalProperties, `${path}Value`, { isRun })}]`;
    return PLAIN[schema.type ?? ""] ?? "Any";
  }
}

const PLAIN: Readonly<Record<string, string>> = {
  integer: "int",
  number: "float",
  string: "str",
  boolean: "bool",
  null: "None",
};

function describe(schema: Schema, indent: string): string {
  const text = schema.description ?? schema.anyOf?.find((item) => item.description)?.description;
  return text === undefined
    ? ""
    : wrap(text, LINE_CHARACTERS - 8)
        .map((line) => `${indent}# ${line}\n`)
        .join("");
}

/** The whole text of sdk-python/flotilla/errors.py. */
export function generatePythonErrors(): string {
  const codes = Object.keys(ERRORS) as ErrorCode[];
  const classes = codes.map(
    (code) => `class ${className(code)}(FlotillaError):\n    """${sentence(ERRORS[code].meaning)}"""\n`,
  );
  return `${HEAD}
from __future__ import annotations

from typing import Dict, Type

from ._error import Aborted, FlotillaError, NoAnswer, TimedOut, Unreachable

${classes.join("\n\n")}

BY_CODE: Dict[str, Type[FlotillaError]] = {
${codes.map((code) => `    "${code}": ${className(code)},\n`).join("")}}

ADVICE: Dict[str, str] = {
${codes.map((code) => `    "${code}": ${JSON.stringify(ADVICE[code])},\n`).join("")}}

__all__ = [
${["Aborted", "FlotillaError", "NoAnswer", "TimedOut", "Unreachable", ...codes.map(className)]
  .sort()
  .map((name) => `    "${name}",\n`)
  .join("")}]
`;
}

const className = (code: string): string => pascal(code);
const sentence = (text: string): string => `${text.slice(0, 1).toUpperCase()}${text.slice(1)}.`;

/** The whole text of sdk-python/flotilla/_methods.py. */
export function generatePythonMethods(): string {
  const served = endpointList.filter(([, endpoint]) => endpoint.isUpgrade === undefined);
  const of = (isAsync: boolean): string =>
    served.map(([name, endpoint]) => printMethod(name, endpoint, isAsync)).join("\n");
  return `${HEAD}
from __future__ import annotations

from typing import Any, Dict, List, Literal, Optional, cast

from . import types as t
from ._call import AsyncBody, Body, Call, Options, rest, segment
from ._streams import AsyncByteStream, ByteStream


class Methods:
    """One method for each endpoint, for callers that wait."""

    def _call(self, call: Call, options: Options) -> Any:
        raise NotImplementedError

    def _stream(self, call: Call, options: Options) -> ByteStream:
        raise NotImplementedError

${of(false)}

class AsyncMethods:
    """One method for each endpoint, for callers that await."""

    async def _call(self, call: Call, options: Options) -> Any:
        raise NotImplementedError

    async def _stream(self, call: Call, options: Options) -> AsyncByteStream:
        raise NotImplementedError

${of(true)}`;
}

function printMethod(name: string, endpoint: Endpoint, isAsync: boolean): string {
  const parameters: string[] = ["self"];
  const path = endpoint.path.replace(/\{(\w+)(\.\.\.)?\}/g, (_, word: string, dots?: string) => {
    parameters.push(`${safe(word)}: ${word === "port" ? "int" : "str"}`);
    return `{${dots ? "rest" : "segment"}(${safe(word)})}`;
  });
  const { body } = endpoint;
  const bytes = isAsync ? "AsyncBody" : "Body";
  if (body?.kind === "json") {
    const type = typeOf(body.schema);
    parameters.push(body.isOptional ? `body: Optional[${type}] = None` : `body: ${type}`);
  } else if (body?.kind === "bytes") parameters.push(`body: ${bytes}`);
  const schemaOfQuery: Schema = endpoint.query ?? {};
  const query = Object.entries(schemaOfQuery.properties ?? {});
  const named = query.map(([key, schema]) => [key, safe(snake(key)), typeOf(schema)] as const);
  const extra = named.map(([, parameter, type]) => `${parameter}: Optional[${type}] = None`);
  const options = ["timeout: Optional[float] = None", "headers: Optional[Dict[str, str]] = None"];
  if (endpoint.method === "POST") options.unshift("idempotency_key: Optional[str] = None");
  parameters.push("*", ...extra, ...options);
  const { kind, type } = answerOf(endpoint, isAsync);
  const call = [
    `"${endpoint.method}"`,
    path === endpoint.path ? `"${path}"` : `f"${path}"`,
    ...(body?.kind === "json" ? ["json=body"] : body?.kind === "bytes" ? ["content=body"] : []),
    ...(named.length === 0 ? [] : [`query={${named.map(([key, parameter]) => `"${key}": ${parameter}`).join(", ")}}`]),
  ];
  const given = endpoint.method === "POST" ? "Options(timeout, headers, idempotency_key)" : "Options(timeout, headers)";
  const made = `${isAsync ? "await " : ""}self.${kind === "stream" ? "_stream" : "_call"}(call, ${given})`;
  const answer = kind === "json" ? `return cast("${type}", ${made})` : kind === "stream" ? `return ${made}` : made;
  return `    ${isAsync ? "async " : ""}def ${safe(snake(name))}(
${parameters.map((parameter) => `        ${parameter},\n`).join("")}    ) -> ${type}:
        """${documentation(endpoint)}"""
        call = Call(
${call.map((part) => `            ${part},\n`).join("")}        )
        ${answer}
`;
}

/** A type as methods name it. */
function typeOf(schema: Schema): string {
  const name = shapes.nameOf(schema);
  if (name !== undefined) return `t.${name}`;
  if (schema.anyOf !== undefined) return schema.anyOf.map(typeOf).join(" | ");
  if (schema.enum !== undefined) return `Literal[${schema.enum.map((item) => JSON.stringify(item)).join(", ")}]`;
  if (schema.items !== undefined) return `List[${typeOf(schema.items)}]`;
  return PLAIN[schema.type ?? ""] ?? "Any";
}

function documentation(endpoint: Endpoint): string {
  const paragraphs = [`${endpoint.summary}.`];
  if (endpoint.description !== undefined) paragraphs.push("", endpoint.description);
  const scopes = typeof endpoint.access === "string" ? "" : ` Needs scope ${endpoint.access.join(" or ")}.`;
  paragraphs.push("", `\`${endpoint.method} ${endpoint.path}\`.${scopes}`);
  const lines = paragraphs.flatMap((paragraph) => wrap(paragraph.replaceAll("\\", "\\\\"), LINE_CHARACTERS - 8));
  return `${lines.map((line, index) => (index === 0 || line === "" ? line : `        ${line}`)).join("\n")}\n        `;
}

function answerOf(endpoint: Endpoint, isAsync: boolean): { kind: "json" | "empty" | "stream"; type: string } {
  const answers = Object.values(endpoint.answers);
  if (answers.some((answer) => answer.kind === "stream") || answers.length === 0)
    return { kind: "stream", type: isAsync ? "AsyncByteStream" : "ByteStream" };
  const types = answers.flatMap((answer) => (answer.kind === "json" ? [typeOf(answer.schema as Schema)] : []));
  if (types.length === 0) return { kind: "empty", type: "None" };
  const optional = types.length < answers.length ? ["None"] : [];
  return { kind: "json", type: [...new Set([...types, ...optional])].join(" | ") };
}

function wrap(text: string, width: number): string[] {
  const lines = [""];
  for (const word of text.split(/\s+/)) {
    const line = lines.at(-1) ?? "";
    if (line !== "" && line.length + 1 + word.length > width) lines.push(word);
    else lines[lines.length - 1] = line === "" ? word : `${line} ${word}`;
  }
  return lines;
}

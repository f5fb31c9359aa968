/**
 * The repository as tidy reads it: every text file by its path, and every TypeScript file parsed once into
 * code, comments, imports and exports.
 *
 * Always: reads only files that git tracks or would track, so that a developer's other files are not checked.
 * A test makes a tree from a few strings instead.
 *
 * A small tokenizer reads TypeScript, not a compiler: the compiler in use has no programming interface, and
 * tidy asks only questions that tokens can answer.
 */
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { type Comment, maskSource } from "./mask.ts";

/** One import or re-export of a TypeScript file. */
export interface ImportEdge {
  readonly line: number;
  readonly specifier: string;
  /** Erased before the program runs. */
  readonly isTypeOnly: boolean;
  /** The imported names as the other file exports them; null: all of them. */
  readonly names: readonly string[] | null;
  /** Path of the imported file of ours; null: a package or one of Node's modules. */
  readonly target: string | null;
}

export interface ExportedName {
  readonly line: number;
  readonly name: string;
  /** An interface or a type alias. */
  readonly isType: boolean;
}

/** A TypeScript file. */
export interface Source {
  readonly path: string;
  readonly text: string;
  /**
   * The text with comments and the content of strings and regular expressions blanked; same length, same
   * lines.
   */
  readonly code: string;
  readonly comments: readonly Comment[];
  readonly imports: readonly ImportEdge[];
  readonly exports: readonly ExportedName[];
}

export interface Tree {
  readonly files: ReadonlyMap<string, string>;
  readonly sources: ReadonlyMap<string, Source>;
}

/** A violation of a rule. */
export interface Finding {
  readonly path: string;
  /** From 1. */
  readonly line: number;
  readonly rule: string;
  /** What is wrong and what to do instead. */
  readonly message: string;
}

/** Reads the tree of the git checkout at `root`, including new files that are not ignored. */
export function readTree(root: string): Tree {
  const listed = execFileSync("git", ["ls-files", "-co", "--exclude-standard", "-z"], { cwd: root, encoding: "utf8" });
  const files: [string, string][] = [];
  for (const name of listed.split("\0")) {
    const absolute = path.join(root, name);
    if (name === "" || name === "package-lock.json" || name === "LICENSE" || !existsSync(absolute)) continue;
    const bytes = readFileSync(absolute);
    if (!bytes.subarray(0, 8192).includes(0)) files.push([name, bytes.toString("utf8")]);
  }
  return makeTree(files);
}

/** Makes a tree of the given paths and texts. */
export function makeTree(files: Iterable<readonly [string, string]>): Tree {
  const byPath = new Map(files);
  const sources = new Map<string, Source>();
  for (const [name, text] of byPath) if (/\.tsx?$/.test(name)) sources.set(name, readSource(name, text));
  return { files: byPath, sources };
}

/** The line, from 1, of the character at `offset`. */
export function lineAt(text: string, offset: number): number {
  let line = 1;
  for (let at = text.indexOf("\n"); at !== -1 && at < offset; at = text.indexOf("\n", at + 1)) line++;
  return line;
}

function readSource(name: string, text: string): Source {
  const { code, comments } = maskSource(text);
  return { path: name, text, code, comments, imports: readImports(name, text, code), exports: readExports(code) };
}

const STATIC_IMPORT = /\b(?:import|export)\b(\s+type\b(?!\s*,|\s+from\b))?\s*([\w$*\s{},]*?)\s*\bfrom\s*["']/g;
const BARE_IMPORT = /\bimport\s*\(?\s*["']/g;

function readImports(name: string, text: string, code: string): ImportEdge[] {
  const edges: ImportEdge[] = [];
  const add = (start: number, end: number, isTypeOnly: boolean, names: readonly string[] | null) => {
    const quote = text.charAt(end - 1);
    const specifier = text.slice(end, text.indexOf(quote, end));
    const target = resolve(name, specifier);
    edges.push({ line: lineAt(text, start), specifier, isTypeOnly, names, target });
  };
  for (const match of code.matchAll(STATIC_IMPORT)) {
    const clause = match[2] ?? "";
    const parts = clause.replace(/[{}]/g, "").split(",");
    const isEveryNameAType =
      clause.startsWith("{") && parts.every((part) => part.trim() === "" || /^\s*type\s/.test(part));
    const names = clause.includes("*") ? null : parts.map(importedName).filter((part) => part !== "");
    add(match.index, match.index + match[0].length, match[1] !== undefined || isEveryNameAType, names);
  }
  for (const match of code.matchAll(BARE_IMPORT)) add(match.index, match.index + match[0].length, false, null);
  return edges;
}

/** `type A as B` → `A`. */
function importedName(part: string): string {
  return (
    part
      .trim()
      .replace(/^type\s+/, "")
      .split(/\s/)[0] ?? ""
  );
}

function resolve(from: string, specifier: string): string | null {
  if (specifier.startsWith(".")) return path.posix.join(path.posix.dirname(from), specifier);
  const member = /^@flotilla\/([a-z]+)\/(.+)$/.exec(specifier);
  return member === null ? null : `${member[1]}/src/${member[2]}.ts`;
}

const EXPORTED_DECLARATION =
  /^export\s+(?:declare\s+)?(?:async\s+)?(?:abstract\s+)?(const|let|var|function\*?|class|interface|type)\s+([\w$]+)/gm;
const EXPORTED_LIST = /^export\s+(type\s+)?\{([^}]*)\}(?!\s*from)/gm;

function readExports(code: string): ExportedName[] {
  const found: ExportedName[] = [];
  for (const match of code.matchAll(EXPORTED_DECLARATION)) {
    const isType = match[1] === "interface" || match[1] === "type";
    found.push({ line: lineAt(code, match.index), name: match[2] ?? "", isType });
  }
  for (const match of code.matchAll(EXPORTED_LIST)) {
    for (const part of (match[2] ?? "").split(",")) {
      const name = part.trim().split(/\s/).at(-1) ?? "";
      const isType = match[1] !== undefined || part.trim().startsWith("type ");
      if (name !== "") found.push({ line: lineAt(code, match.index), name, isType });
    }
  }
  return found;
}

/**
 * The blocks of code in the project's documents, and which of them are commands that a test runs.
 *
 * The text after a fence says what a block is: `sh` runs as printed, `sh not run: REASON` does not and says
 * why, and any other language is something else. Readers see the reason in the source only.
 */
import { readFileSync } from "node:fs";
import { glob } from "node:fs/promises";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

export interface Block {
  readonly file: string;
  /** Where its fence is, from 1. */
  readonly line: number;
  /** The text after the fence. */
  readonly info: string;
  readonly lines: readonly string[];
}

export interface Blocks {
  readonly blocks: readonly Block[];
  /** Lines at which code begins that is only indented, or whose fence is not closed. */
  readonly unfenced: readonly string[];
}

/** README and docs; decisions have no commands. */
export async function documents(): Promise<readonly string[]> {
  const found: string[] = [];
  for await (const file of glob(["*.md", "docs/*.md", "docs/decisions/*.md"], { cwd: ROOT })) found.push(file);
  return found.sort();
}

export const blocksOf = (file: string): Blocks => parse(file, readFileSync(`${ROOT}${file}`, "utf8"));

/** Pure. */
export function parse(file: string, text: string): Blocks {
  const blocks: Block[] = [];
  const unfenced: string[] = [];
  let open: { block: Block & { readonly lines: string[] }; indent: string } | null = null;
  let before = "";
  for (const [index, line] of text.split("\n").entries()) {
    const fence = /^( *)```(.*)$/.exec(line);
    if (open !== null) {
      if (fence !== null && fence[2] === "") {
        blocks.push(open.block);
        open = null;
      } else open.block.lines.push(line.startsWith(open.indent) ? line.slice(open.indent.length) : line);
    } else if (fence !== null) {
      const [, indent = "", info = ""] = fence;
      open = { block: { file, line: index + 1, info, lines: [] }, indent };
    } else if (/^( {4}|\t)/.test(line) && before.trim() === "") unfenced.push(`${file}:${index + 1}`);
    before = line;
  }
  if (open !== null) unfenced.push(`${file}:${open.block.line}`);
  return { blocks, unfenced };
}

/** `run`, `excused` or `no command`; else what is wrong with the block. */
export function judge({ info, lines }: Pick<Block, "info" | "lines">): string {
  if (info === "sh") return "run";
  if (/^sh not run: \S.{9,}$/.test(info)) return "excused";
  if (info.startsWith("sh")) return `"${info}" is neither \`sh\` nor \`sh not run: REASON\``;
  if (!/^[a-z]+$/.test(info)) return "the fence names no language";
  const command = lines.find((line) => /^\s*(\$ |\.\/flotilla |flotilla |npm |FLOTILLA_\w+=)/.test(line));
  return command === undefined ? "no command" : `"${command.trim()}" is a command: name the block \`sh\``;
}

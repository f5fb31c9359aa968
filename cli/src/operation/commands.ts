/**
 * The verbs of `flotilla operation`, with their options.
 *
 * A table; each verb's code is in the file with its name.
 */
import type { Command } from "commander";
import { count } from "../arguments.ts";
import { addNoun, addVerb, type Tree } from "../command.ts";

export function addOperationCommands(tree: Tree, root: Command): void {
  const operation = addNoun(root, "operation", "see long work, such as fetching an image");
  addVerb(tree, operation, {
    usage: "ls",
    summary: "list operations, newest first",
    options: (command) => command.option("--limit <count>", "at most this many", count),
    load: () => import("./ls.ts"),
  });
  addVerb(tree, operation, {
    usage: "get <id>",
    summary: "show one operation with its steps",
    load: () => import("./get.ts"),
  });
  addVerb(tree, operation, {
    usage: "cancel <id>",
    summary: "end an operation early; what it did is undone where that is possible (needs an admin key)",
    load: () => import("./cancel.ts"),
  });
}

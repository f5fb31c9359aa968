/**
 * The verbs of `flotilla token`, with their options.
 *
 * A table; each verb's code is in the file with its name.
 */
import type { Command } from "commander";
import { count, pair, seconds } from "../arguments.ts";
import { addNoun, addVerb, type Tree } from "../command.ts";

export function addTokenCommands(tree: Tree, root: Command): void {
  const token = addNoun(root, "token", "make, list and revoke join tokens, with which hosts become nodes");
  addVerb(tree, token, {
    usage: "create",
    summary: "make a join token, which is shown only once (needs an admin key)",
    options: (command) =>
      command
        .option("--description <text>", "what it is for")
        .option("--expires-in <time>", "how long it may be used, such as 10m or 7d (default: 1h)", seconds)
        .option("--uses <number>", "how many nodes may join with it (default: 1)", count)
        .option("--label <name=value>", "a label of the nodes that join with it; repeat for more", pair),
    load: () => import("./create.ts"),
  });
  addVerb(tree, token, {
    usage: "ls",
    summary: "list join tokens, without their secrets (needs an admin key)",
    load: () => import("./ls.ts"),
  });
  addVerb(tree, token, {
    usage: "rm <prefixes...>",
    summary: "revoke join tokens; nodes that have joined stay (needs an admin key)",
    load: () => import("./rm.ts"),
  });
}

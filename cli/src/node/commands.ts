/**
 * The verbs of `flotilla node`, with their options. Without a verb the word runs a node.
 *
 * A table: what a verb does stands in the file of its name.
 */
import type { Command } from "commander";
import { seconds } from "../arguments.ts";
import { addVerb, type Tree } from "../command.ts";

export function addNodeCommands(tree: Tree, node: Command): void {
  // What stands after a verb is the verb's, also where the program that runs a node has an option of that name.
  node.enablePositionalOptions().helpCommand(false);
  addVerb(tree, node, {
    words: "ls",
    summary: "list the nodes of the cluster (needs an admin key)",
    load: () => import("./ls.ts"),
  });
  addVerb(tree, node, {
    words: "drain <node>",
    summary: "start nothing more on a node, and stop what runs there in the end (needs an admin key)",
    options: (command) =>
      command
        .option(
          "--deadline <time>",
          "how long machines may go on running, such as 0, 90s or 2h (default: 10m)",
          seconds,
        )
        .option("-d, --detach", "do not wait"),
    load: () => import("./drain.ts"),
  });
}

/**
 * The verbs of `flotilla key`, with their options.
 *
 * A table; each verb's code is in the file with its name.
 */
import type { Command } from "commander";
import { seconds, collect } from "../arguments.ts";
import { addNoun, addVerb, type Tree } from "../command.ts";

export function addKeyCommands(tree: Tree, root: Command): void {
  const key = addNoun(root, "key", "make, list and revoke API keys");
  addVerb(tree, key, {
    usage: "create",
    summary: "make an API key, which is shown only once",
    options: (command) =>
      command
        .option("--description <text>", "what it is for")
        .option(
          "--scope <scope>",
          "what it may do, such as machine:exec; repeat for more (default: all you may)",
          collect,
        )
        .option(
          "--expires-in <time>",
          "when it stops working, such as 15m or 30d (default: with your own key)",
          seconds,
        )
        .option("--tenant <tenant>", "whose key it is; needs an admin's key")
        .option("--e2b", "print it in the spelling that E2B's clients accept"),
    load: () => import("./create.ts"),
  });
  addVerb(tree, key, {
    usage: "ls",
    summary: "list API keys, without their secrets",
    options: (command) => command.option("--tenant <tenant>", "whose keys; needs an admin's key"),
    load: () => import("./ls.ts"),
  });
  addVerb(tree, key, {
    usage: "rm <ids...>",
    summary: "revoke API keys, immediately on every server",
    options: (command) => command.option("--cascade", "also the keys made with them, with those, and so on"),
    load: () => import("./rm.ts"),
  });
}

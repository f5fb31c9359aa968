/**
 * The verbs of `flotilla audit`. A table; each verb's code is in the file with its name.
 */
import type { Command } from "commander";
import { count } from "../arguments.ts";
import { addNoun, addVerb, type Tree } from "../command.ts";

export function addAuditCommands(tree: Tree, root: Command): void {
  const audit = addNoun(root, "audit", "who changed what, and which calls were refused");
  addVerb(tree, audit, {
    usage: "ls",
    summary: "list recorded calls, oldest first",
    options: (command) =>
      command
        .option("--from <sequence>", "only those after this one", count)
        .option("--tenant <id>", "whose; needs an admin's key"),
    load: () => import("./ls.ts"),
  });
  addVerb(tree, audit, {
    usage: "verify",
    summary: "check that no recorded call was changed or removed",
    options: (command) => command.option("--tenant <id>", "whose log; needs an admin's key"),
    load: () => import("./verify.ts"),
  });
}

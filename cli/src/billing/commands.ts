/**
 * The verbs of `flotilla billing`, with their options.
 *
 * A table; each verb's code is in the file with its name.
 */
import type { Command } from "commander";
import { addNoun, addVerb, type Tree } from "../command.ts";

export function addBillingCommands(tree: Tree, root: Command): void {
  const billing = addNoun(root, "billing", "check invoices");
  addVerb(tree, billing, {
    usage: "verify",
    summary: "compute every final invoice again from its intervals, and compare; exit code 1 on a difference",
    options: (command) =>
      command.option("--tenant <id>", "only this tenant's (default: with an admin key all, otherwise your own)"),
    load: () => import("./verify.ts"),
  });
}

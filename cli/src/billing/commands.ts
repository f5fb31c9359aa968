/**
 * The verbs of `flotilla billing`, with their options.
 *
 * A table; each verb's code is in the file with its name.
 */
import type { Command } from "commander";
import { addNoun, addVerb, type Tree } from "../command.ts";

export function addBillingCommands(tree: Tree, root: Command): void {
  const billing = addNoun(root, "billing", "show the balance, give credit, and check invoices");
  addVerb(tree, billing, {
    usage: "ledger",
    summary: "list what changed the balance: invoices, credits and adjustments",
    options: (command) => command.option("--tenant <tenant>", "another tenant's (needs an admin key)"),
    load: () => import("./ledger.ts"),
  });
  addVerb(tree, billing, {
    usage: "credit <tenant> <amount>",
    summary: "add an amount such as 100 or 19.99 to a tenant's balance (needs an admin key)",
    options: (command) =>
      command
        .option("--note <text>", "for people")
        .option("--take-back", "take the amount off the balance instead, as an adjustment"),
    load: () => import("./credit.ts"),
  });
  addVerb(tree, billing, {
    usage: "verify",
    summary: "compute every final invoice again from its intervals, and compare; exit code 1 on a difference",
    options: (command) =>
      command.option("--tenant <tenant>", "only this tenant's (default: with an admin key all, otherwise your own)"),
    load: () => import("./verify.ts"),
  });
}

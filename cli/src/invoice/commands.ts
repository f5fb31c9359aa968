/**
 * The verbs of `flotilla invoice`, with their options.
 *
 * A table; each verb's code is in the file with its name.
 */
import type { Command } from "commander";
import { instant } from "../arguments.ts";
import { addNoun, addVerb, type Tree } from "../command.ts";

const TENANT = "--tenant <tenant>";
const TENANT_MEANING = "another tenant's (needs an admin key)";

export function addInvoiceCommands(tree: Tree, root: Command): void {
  const invoice = addNoun(root, "invoice", "show what each month costs");
  addVerb(tree, invoice, {
    usage: "ls",
    summary: "list invoices, one for each month; the current one is a draft",
    options: (command) => command.option(TENANT, TENANT_MEANING),
    load: () => import("./ls.ts"),
  });
  addVerb(tree, invoice, {
    usage: "show <month>",
    summary: "show the invoice of a month such as 2026-07, with its lines",
    options: (command) =>
      command
        .option(TENANT, TENANT_MEANING)
        .option("--as-of <time>", "as it was known then, such as 2026-07-15 or 2026-07-15T12:00:00Z", instant)
        .option("--by <group>", "divide it: machine, app (the label app), key, or label:NAME such as label:team")
        .option("--csv", "one row for each line, or for each part of one with --by, as CSV")
        .option("--focus", "one row for each machine, key, meter and price, as CSV with FOCUS 1.0 columns"),
    load: () => import("./show.ts"),
  });
}

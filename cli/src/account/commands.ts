/**
 * The verbs that show what a tenant may use, has used and has to pay.
 *
 * A table; each verb's code is in the file with its name.
 */
import type { Command } from "commander";
import { instant } from "../arguments.ts";
import { addVerb, type Tree } from "../command.ts";

export function addAccountCommands(tree: Tree, root: Command): void {
  addVerb(tree, root, {
    usage: "account",
    summary: "show your plan, its limits, and this month's usage and cost",
    load: () => import("./account.ts"),
  });
  addVerb(tree, root, {
    usage: "usage",
    summary: "show what your machines used, also the deleted ones",
    options: (command) =>
      command
        .option("--from <time>", "such as 2026-07-01 or 2026-07-01T12:00:00Z (default: the month's start)", instant)
        .option("--to <time>", "exclusive (default: now)", instant),
    load: () => import("./usage.ts"),
  });
}

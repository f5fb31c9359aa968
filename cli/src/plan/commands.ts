/**
 * The verbs of `flotilla plan`, with their options. They need an admin key.
 *
 * A table; each verb's code is in the file with its name.
 */
import type { Command } from "commander";
import { instant, micros, orNone } from "../arguments.ts";
import { addNoun, addVerb, type Tree } from "../command.ts";
import { withLimits } from "./limits.ts";
import { withPrices } from "./prices.ts";

export function addPlanCommands(tree: Tree, root: Command): void {
  const plan = addNoun(root, "plan", "make and list plans, and set their prices (needs an admin key)");
  addVerb(tree, plan, {
    usage: "create <name>",
    summary: "make a plan; what is left out is taken from the default plan",
    options: (command) =>
      withLimits(withPrices(command).option("--default", "make it the plan of tenants that have no other")).option(
        "--budget <amount>",
        "monthly budget, such as 100 or 19.99",
        micros,
      ),
    load: () => import("./create.ts"),
  });
  addVerb(tree, plan, {
    usage: "update <plan>",
    summary: "change a plan's limits or budget, for all of its tenants; `plan rate` sets prices",
    options: (command) =>
      withLimits(command)
        .option("--name <name>", "its name")
        .option("--budget <amount>", "monthly budget, such as 100 or 19.99, or none", orNone(micros)),
    load: () => import("./update.ts"),
  });
  addVerb(tree, plan, {
    usage: "ls",
    summary: "list plans, with their limits and current prices",
    load: () => import("./ls.ts"),
  });
  addVerb(tree, plan, {
    usage: "get <plan>",
    summary: "show a plan's limits, current prices and budget",
    load: () => import("./get.ts"),
  });
  addVerb(tree, plan, {
    usage: "rates <plan>",
    summary: "list a plan's prices, past and future",
    load: () => import("./rates.ts"),
  });
  addVerb(tree, plan, {
    usage: "diff <plan> <month>",
    summary: "show what a month such as 2026-07 would cost each tenant at other prices; changes nothing",
    options: (command) =>
      withPrices(command).addHelpText(
        "after",
        "\nA price that is left out is that of the plan's newest rate, which may be in the future.",
      ),
    load: () => import("./diff.ts"),
  });
  addVerb(tree, plan, {
    usage: "rate <plan>",
    summary: "set a plan's prices from a time on; what was used before keeps its price",
    options: (command) =>
      withPrices(command).option("--from <time>", "such as 2026-08-01 (default: in a minute, the earliest)", instant),
    load: () => import("./rate.ts"),
  });
}

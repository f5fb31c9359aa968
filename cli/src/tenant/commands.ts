/**
 * The verbs of `flotilla tenant`, with their options. They need an admin key.
 *
 * A table; each verb's code is in the file with its name.
 */
import type { Command } from "commander";
import { addNoun, addVerb, type Tree } from "../command.ts";

export function addTenantCommands(tree: Tree, root: Command): void {
  const tenant = addNoun(root, "tenant", "make, list and suspend tenants (needs an admin key)");
  addVerb(tree, tenant, {
    usage: "create <name>",
    summary: "make a tenant; `key create --tenant` then makes its first key",
    options: (command) => command.option("--plan <id>", "its plan (default: the default plan, also when that changes)"),
    load: () => import("./create.ts"),
  });
  addVerb(tree, tenant, {
    usage: "ls",
    summary: "list tenants, with what each has used and has to pay this month",
    load: () => import("./ls.ts"),
  });
  addVerb(tree, tenant, {
    usage: "move <id> <plan>",
    summary: "put a tenant on another plan, from now on",
    load: () => import("./move.ts"),
  });
  addVerb(tree, tenant, {
    usage: "suspend <id>",
    summary: "refuse every call of a tenant, close its connections and stop its machines; its data stays",
    load: () => import("./suspend.ts"),
  });
  addVerb(tree, tenant, {
    usage: "reactivate <id>",
    summary: "end a suspension; machines are started by their owner",
    load: () => import("./reactivate.ts"),
  });
}

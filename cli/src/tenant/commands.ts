/**
 * The verbs of `flotilla tenant`, with their options. They need an admin key.
 *
 * A table; each verb's code is in the file with its name.
 */
import type { Command } from "commander";
import { count, diskGb, instant, memoryMb, orDefault } from "../arguments.ts";
import { addNoun, addVerb, type Tree } from "../command.ts";

export function addTenantCommands(tree: Tree, root: Command): void {
  const tenant = addNoun(root, "tenant", "make, list, change and suspend tenants (needs an admin key)");
  addVerb(tree, tenant, {
    usage: "create <name>",
    summary: "make a tenant; `key create --tenant` then makes its first key",
    options: (command) =>
      command
        .option("--plan <plan>", "its plan (default: the default plan, also when that changes)")
        .option("--test-clock", "let its billing time be moved by `tenant advance`, to rehearse months; for good"),
    load: () => import("./create.ts"),
  });
  addVerb(tree, tenant, {
    usage: "ls",
    summary: "list tenants, with what each has used and has to pay this month",
    load: () => import("./ls.ts"),
  });
  addVerb(tree, tenant, {
    usage: "get <tenant>",
    summary: "show a tenant's plan and its own ceilings",
    load: () => import("./get.ts"),
  });
  addVerb(tree, tenant, {
    usage: "update <tenant>",
    summary: "change a tenant's plan or its own ceilings; the word `default` takes back what was set",
    options: (command) =>
      command
        .option("--plan <plan>", "its plan from now on; what was used before keeps its price", orDefault(String))
        .option("--max-cpus <count>", "virtual processors of one machine", orDefault(count))
        .option("--max-memory <size>", "memory of one machine, such as 8g", orDefault(memoryMb))
        .option("--max-disk <size>", "disk of one machine, such as 100g", orDefault(diskGb))
        .option("--billing-id <id>", "its id in your own billing", orDefault(String)),
    load: () => import("./update.ts"),
  });
  addVerb(tree, tenant, {
    usage: "advance <tenant>",
    summary: "move the billing time of a tenant with a test clock forward",
    options: (command) => command.requiredOption("--to <time>", "such as 2026-08-01 or 2026-08-01T12:00:00Z", instant),
    load: () => import("./advance.ts"),
  });
  addVerb(tree, tenant, {
    usage: "suspend <tenant>",
    summary: "refuse every call of a tenant, close its connections and stop its machines; its data stays",
    load: () => import("./suspend.ts"),
  });
  addVerb(tree, tenant, {
    usage: "reactivate <tenant>",
    summary: "end a suspension; machines are started by their owner",
    load: () => import("./reactivate.ts"),
  });
}

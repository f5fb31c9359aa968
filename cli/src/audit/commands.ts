/**
 * The verbs of `flotilla audit`. A table; each verb's code is in the file with its name.
 */
import type { Command } from "commander";
import { count, instant } from "../arguments.ts";
import { addNoun, addVerb, type Tree } from "../command.ts";

export function addAuditCommands(tree: Tree, root: Command): void {
  const audit = addNoun(root, "audit", "who changed what, and which calls were refused");
  addVerb(tree, audit, {
    usage: "ls",
    summary: "list recorded calls, oldest first",
    options: (command) =>
      command
        .option("--tenant <tenant>", "another tenant's (needs an admin key)")
        .option("--all", "of all tenants, in the order of their times (needs an admin key)")
        .option("--key <id>", "only calls of this key")
        .option("--resource <id>", "only calls that named this id or made it")
        .option("--type <type>", "only calls of this type, such as machines.deleteMachine or machines.*")
        .option("--since <time>", "from then on, such as 2026-07-15 or 2026-07-15T12:00:00Z", instant)
        .option("--until <time>", "before then", instant)
        .option("--from <sequence>", "only those after this one", count),
    load: () => import("./ls.ts"),
  });
  addVerb(tree, audit, {
    usage: "verify",
    summary: "check that no recorded call was changed or removed",
    options: (command) =>
      command
        .option("--tenant <tenant>", "another tenant's (needs an admin key)")
        .option("--all", "of all tenants (needs an admin key)"),
    load: () => import("./verify.ts"),
  });
}

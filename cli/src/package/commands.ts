/**
 * The verbs of `flotilla package`, with their options.
 *
 * A table; each verb's code is in the file with its name.
 */
import type { Command } from "commander";
import { count } from "../arguments.ts";
import { addNoun, addVerb, type Tree } from "../command.ts";

export function addPackageCommands(tree: Tree, root: Command): void {
  const packages = addNoun(root, "package", "see, keep and delete packages, which `machine export` makes");
  addVerb(tree, packages, {
    usage: "ls",
    summary: "list your packages and those of the library, by name, the newest first",
    load: () => import("./ls.ts"),
  });
  addVerb(tree, packages, {
    usage: "rm <reference...>",
    summary: "delete tags, or with @sha256:… packages; machines that were started from them stay",
    load: () => import("./rm.ts"),
  });
  addVerb(tree, packages, {
    usage: "keep [name]",
    summary: "keep only the newest tags of a package; without a name, list what is kept",
    options: (command) =>
      command.option("--last <count>", "how many; older ones are deleted", count).option("--all", "keep all again"),
    load: () => import("./keep.ts"),
  });
}

/**
 * The verbs of `flotilla authority`, with their options.
 *
 * A table; each verb's code is in the file with its name.
 */
import type { Command } from "commander";
import { addNoun, addVerb, type Tree } from "../command.ts";

export function addAuthorityCommands(tree: Tree, root: Command): void {
  const authority = addNoun(root, "authority", "list and replace the authorities that sign certificates of nodes");
  addVerb(tree, authority, {
    usage: "ls",
    summary: "list the authorities that servers and nodes trust (needs an admin key)",
    load: () => import("./ls.ts"),
  });
  addVerb(tree, authority, {
    usage: "rotate",
    summary: "make a new authority sign; earlier ones stay trusted (needs an admin key)",
    load: () => import("./rotate.ts"),
  });
  addVerb(tree, authority, {
    usage: "rm <fingerprint>",
    summary: "end the trust in an authority that no longer signs (needs an admin key)",
    load: () => import("./rm.ts"),
  });
}

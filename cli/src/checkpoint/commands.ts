/**
 * The verbs of `flotilla checkpoint`, with their options.
 *
 * A table; each verb's code is in the file with its name.
 */
import type { Command } from "commander";
import { addNoun, addVerb, type Tree } from "../command.ts";

export function addCheckpointCommands(tree: Tree, root: Command): void {
  const checkpoint = addNoun(root, "checkpoint", "see, restore and delete kept instants of machines");
  addVerb(tree, checkpoint, {
    usage: "ls",
    summary: "list checkpoints, also of machines that are gone",
    load: () => import("./ls.ts"),
  });
  addVerb(tree, checkpoint, {
    usage: "show <checkpoint>",
    summary: "show one checkpoint",
    load: () => import("./show.ts"),
  });
  addVerb(tree, checkpoint, {
    usage: "restore <checkpoint> <name>",
    summary: "make a stopped machine of this name that has the disk of a checkpoint",
    load: () => import("./restore.ts"),
  });
  addVerb(tree, checkpoint, {
    usage: "rm <checkpoints...>",
    summary: "delete checkpoints; machines that were made from them stay",
    load: () => import("./rm.ts"),
  });
}

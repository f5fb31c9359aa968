/**
 * The verbs of `flotilla node`, with their options. Without a verb, `flotilla node` runs a node.
 *
 * A table; each verb's code is in the file with its name.
 */
import type { Command } from "commander";
import { deadlineSeconds, seconds } from "../arguments.ts";
import { addVerb, type Tree } from "../command.ts";

export function addNodeCommands(tree: Tree, node: Command): void {
  // Options after a verb belong to the verb, also where the program that runs a node has an option with the
  // same name.
  node.enablePositionalOptions().helpCommand(false);
  addVerb(tree, node, {
    usage: "ls",
    summary: "list the nodes of the cluster (needs an admin key)",
    load: () => import("./ls.ts"),
  });
  addVerb(tree, node, {
    usage: "show <node>",
    summary: "show everything about a node (needs an admin key)",
    load: () => import("./show.ts"),
  });
  addOperations(tree, node);
  addVerb(tree, node, {
    usage: "cordon <nodes...>",
    summary: "place no new machines on nodes; those that they have run and start as before (needs an admin key)",
    load: () => import("./cordon.ts"),
  });
  addVerb(tree, node, {
    usage: "maintenance <nodes...>",
    summary:
      "expect nodes to be away: place no new machines there, and say so of their machines, until uncordon (needs an admin key)",
    load: () => import("./maintenance.ts"),
  });
  addVerb(tree, node, {
    usage: "uncordon <nodes...>",
    summary: "place new machines on nodes again, and end their maintenance (needs an admin key)",
    load: () => import("./uncordon.ts"),
  });
  addVerb(tree, node, {
    usage: "replace-lost [nodes...]",
    summary:
      "replace what can be replaced of nodes that do not report, when so many are silent that nothing is by itself (needs an admin key)",
    options: (command) =>
      command.option("--dry-run", "change nothing; show what would be replaced, and what would wait"),
    load: () => import("./replace-lost.ts"),
  });
  addHostVerbs(tree, node);
  addVerb(tree, node, {
    usage: "revoke <nodes...>",
    summary:
      "end the membership of nodes; their connections end at once, and their machines are unreachable (needs an admin key)",
    load: () => import("./revoke.ts"),
  });
  addVerb(tree, node, {
    usage: "decommission <nodes...>",
    summary:
      "remove drained, unreachable or revoked nodes for good, once no machine has its disk there (needs an admin key)",
    load: () => import("./decommission.ts"),
  });
}

/** Verbs that begin or end an operation. */
function addOperations(tree: Tree, node: Command): void {
  addVerb(tree, node, {
    usage: "drain <node>",
    summary: "move all machines of a node to other nodes, and start nothing more on it (needs an admin key)",
    options: (command) =>
      command
        .option(
          "--deadline <time>",
          "how long machines that cannot be moved may keep running, such as 0, 90s or 2h (default: 10m)",
          seconds,
        )
        .option("-d, --detach", "do not wait")
        .option(
          "--dry-run",
          "change nothing; show what would move where, what would stay and why, and how long it takes",
        ),
    load: () => import("./drain.ts"),
  });
  addVerb(tree, node, {
    usage: "cancel-drain <node>",
    summary: "open a draining or drained node again; machines that have moved stay where they are (needs an admin key)",
    load: () => import("./cancel-drain.ts"),
  });
  addVerb(tree, node, {
    usage: "upgrade [nodes...]",
    summary:
      "restart agents as the release that is installed on their hosts, one after the other; machines run on (needs an admin key)",
    options: (command) =>
      command
        .option("--rolling", "all nodes that are ready")
        .option(
          "--vmms",
          "also run their machines in VMMs of the installed program, as their owners permit (disruption)",
        )
        .option("-d, --detach", "do not wait"),
    load: () => import("./upgrade.ts"),
  });
}

/** Verbs for the host on which they are called; they need no key. */
function addHostVerbs(tree: Tree, node: Command): void {
  addVerb(tree, node, {
    usage: "suspend",
    summary:
      "before this host goes down: suspend its machines, or shut down those whose owner does not permit it; they run again when the node starts",
    options: (command) =>
      command.option("--deadline <time>", "until when, such as 80s or 5m (default: 80s)", deadlineSeconds),
    load: async () => (await import("./suspend.ts")).suspend,
  });
  addVerb(tree, node, {
    usage: "resume",
    summary: "run the machines of this host again after `suspend`, if the host did not go down",
    load: async () => (await import("./suspend.ts")).resume,
  });
}

/**
 * The verbs of `flotilla pool`, with their options.
 *
 * A table; each verb's code is in the file with its name.
 */
import type { Command } from "commander";
import { count, memoryMb, seconds } from "../arguments.ts";
import { addNoun, addVerb, type Tree } from "../command.ts";

export function addPoolCommands(tree: Tree, root: Command): void {
  const pool = addNoun(root, "pool", "keep machines started and waiting, and take one when it is needed");
  addVerb(tree, pool, {
    usage: "create <image>",
    summary: "make a pool; its waiting machines are billed like all running ones",
    options: (command) =>
      command
        .option("--size <number>", "how many machines wait (default: 1)", count)
        .option("--cpus <number>", "processors of each machine (default: 4)", count)
        .option("--memory <size>", "of each machine, such as 512m or 2g (default: 8g)", memoryMb)
        .option("--no-network", "its machines do not reach the network")
        .option(
          "--max-idle <time>",
          "replace a machine that has waited this long, such as 1h (default: never)",
          seconds,
        ),
    load: () => import("./create.ts"),
  });
  addVerb(tree, pool, { usage: "ls", summary: "list pools", load: () => import("./ls.ts") });
  addVerb(tree, pool, {
    usage: "claim <id>",
    summary: "take a running machine out of a pool, and print its name",
    load: () => import("./claim.ts"),
  });
  addVerb(tree, pool, {
    usage: "rm <ids...>",
    summary: "delete pools and the machines that wait in them; claimed machines stay",
    load: () => import("./rm.ts"),
  });
}

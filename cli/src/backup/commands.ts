/**
 * `flotilla backup` and `flotilla restore`, with their options.
 *
 * A table; operator.ts runs both.
 */
import type { Command } from "commander";
import { addVerb, type Tree } from "../command.ts";

export function addBackupCommands(tree: Tree, root: Command): void {
  const dataDirectory = ["--data-dir <directory>", "the server's data directory (FLOTILLA_DATA_DIR)"] as const;
  addVerb(tree, root, {
    usage: "backup",
    summary: "write a backup of the control plane of this machine to a file, also while it runs",
    isRemote: false,
    options: (command) =>
      command
        .option("--to <file>", "where (default: flotilla-<time>.tar.gz here); `-`: to standard output")
        .option(...dataDirectory)
        .addHelpText(
          "after",
          "\nIt has the database and the keys: keep it secret. Disks of machines and images are not in it.",
        ),
    load: async () => (await import("./operator.ts")).backup,
  });
  addVerb(tree, root, {
    usage: "restore <file>",
    summary: "make the control plane of a backup again on this machine, where there is none",
    isRemote: false,
    options: (command) =>
      command
        .option(
          "--revoke-keys",
          "end every API key, share link and connect token; a new admin key is made at the start",
        )
        .option(...dataDirectory),
    load: async () => (await import("./operator.ts")).restore,
  });
}

/**
 * The verb that shows a tenant's events. A table; its code is in events.ts.
 */
import type { Command } from "commander";
import { addVerb, type Tree } from "../command.ts";

export function addEventsCommand(tree: Tree, root: Command): void {
  addVerb(tree, root, {
    usage: "events",
    summary: "show the events of all machines and apps, also of deleted ones",
    options: (command) =>
      command
        .option("-f, --follow", "show new events as well, until interrupted")
        .option("--from <cursor>", "only those after the event with this cursor (--json shows it)")
        .option("--type <type>", "only those of this type, such as machine.failed or machine.*")
        .option("--machine <machine>", "only those of one machine: its name or id, of a deleted one its whole id")
        .option("--app <app>", "only those of one app and its instances: its name, of a destroyed one its id"),
    load: () => import("./events.ts"),
  });
}

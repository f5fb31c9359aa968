/**
 * The verbs of `flotilla webhook`, with their options.
 *
 * A table; each verb's code is in the file with its name.
 */
import type { Command } from "commander";
import { count, countOrZero, collect } from "../arguments.ts";
import { addNoun, addVerb, type Tree } from "../command.ts";

export function addWebhookCommands(tree: Tree, root: Command): void {
  const webhook = addNoun(root, "webhook", "send events to addresses of your choice");
  addVerb(tree, webhook, {
    usage: "create <address>",
    summary: "make a webhook; its secret is shown only once",
    options: (command) =>
      command
        .option("--description <text>", "what it is for")
        .option(
          "--type <type>",
          "only these events, such as machine.failed or machine.*; repeat for more (default: all)",
          collect,
        ),
    load: () => import("./create.ts"),
  });
  addVerb(tree, webhook, { usage: "ls", summary: "list webhooks", load: () => import("./ls.ts") });
  addVerb(tree, webhook, { usage: "show <id>", summary: "show one webhook", load: () => import("./show.ts") });
  addVerb(tree, webhook, {
    usage: "set <id>",
    summary: "change a webhook, pause it, or enable it again",
    options: (command) =>
      command
        .option("--address <address>", "where events are sent from now on")
        .option("--description <text>", "what it is for")
        .option("--type <type>", "only these events; repeat for more", collect)
        .option("--all-types", "events of all types")
        .option("--disable", "pause it: events wait for 30 days")
        .option("--enable", "continue where it ended"),
    load: () => import("./set.ts"),
  });
  addVerb(tree, webhook, {
    usage: "rotate <id>",
    summary: "give a webhook a new secret; the previous one also signs for a time",
    options: (command) => command.option("--keep-hours <hours>", "how long (default: 24; 0 ends it now)", countOrZero),
    load: () => import("./rotate.ts"),
  });
  addVerb(tree, webhook, { usage: "rm <ids...>", summary: "delete webhooks", load: () => import("./rm.ts") });
  addVerb(tree, webhook, {
    usage: "test <id>",
    summary: "send a test, and show how the receiver answers",
    load: () => import("./test.ts"),
  });
  addVerb(tree, webhook, {
    usage: "deliveries <id>",
    summary: "list deliveries, newest first",
    options: (command) =>
      command
        .option("--status <status>", "only pending, delivered or failed ones")
        .option("--limit <count>", "how many (default: 100)", count),
    load: () => import("./deliveries.ts"),
  });
  addVerb(tree, webhook, {
    usage: "redeliver <id> <event>",
    summary: "deliver one event again",
    load: () => import("./redeliver.ts"),
  });
  addVerb(tree, webhook, {
    usage: "replay <id>",
    summary: "deliver all events after a cursor again",
    options: (command) => command.option("--from <cursor>", "of an event (default: the oldest that is kept)"),
    load: () => import("./replay.ts"),
  });
}

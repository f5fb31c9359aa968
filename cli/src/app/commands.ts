/**
 * The verbs of `flotilla app`, with their options.
 *
 * A table; each verb's code is in the file with its name.
 */
import { type Command, Option } from "commander";
import { collect, count, countOrZero, deadlineSeconds, memoryMb, pair, port, seconds, since } from "../arguments.ts";
import { addNoun, addVerb, type Tree } from "../command.ts";

export function addAppCommands(tree: Tree, root: Command): void {
  const app = addNoun(root, "app", "deploy images as replicated apps behind a host name");
  addVerb(tree, app, {
    usage: "deploy [name] [image]",
    summary: "deploy an image, or update the app of this name, and wait until it serves",
    options: addDeployOptions,
    load: () => import("./deploy.ts"),
  });
  addVerb(tree, app, { usage: "ls", summary: "list apps", load: () => import("./ls.ts") });
  addVerb(tree, app, {
    usage: "show <app>",
    summary: "show an app and its instances",
    options: (command) => command.option("-w, --watch", "show it again whenever it changes"),
    load: () => import("./show.ts"),
  });
  addVerb(tree, app, {
    usage: "logs <app>",
    summary: "show what the instances of an app have written",
    options: (command) =>
      command
        .option("-f, --follow", "wait for more, also of later instances, until the app is destroyed")
        .option("-n, --tail <lines>", "how many of the last lines to begin with (default: 100)", countOrZero)
        .option("--since <time>", "begin there: a time ago such as 10m, or 2026-07-01T12:00:00Z", since)
        .option("--search <text>", "only lines that contain this text, in upper or lower case")
        .option("-t, --timestamps", "show when each line was written"),
    load: () => import("./logs.ts"),
  });
  addChangeCommands(tree, app);
  addShareCommands(tree, app);
  addVerb(tree, app, {
    usage: "releases <app>",
    summary: "list the releases of an app, newest first",
    load: () => import("./releases.ts"),
  });
  addVerb(tree, app, {
    usage: "explain <app>",
    summary: "say why an app is as it is, and what it waits for",
    load: () => import("./explain.ts"),
  });
  addVerb(tree, app, {
    usage: "rm <apps...>",
    summary: "destroy apps and their instances",
    load: () => import("./rm.ts"),
  });
}

function addChangeCommands(tree: Tree, app: Command): void {
  addVerb(tree, app, {
    usage: "scale <app> <count>",
    summary: "change how many instances serve",
    options: addWaitOptions,
    load: () => import("./scale.ts"),
  });
  addVerb(tree, app, {
    usage: "promote <app>",
    summary: "let the canaries of an app replace its other instances",
    options: addWaitOptions,
    load: () => import("./promote.ts"),
  });
  addVerb(tree, app, {
    usage: "redeploy <app>",
    summary: "ask the registry for the image again, and replace all instances",
    options: addWaitOptions,
    load: () => import("./redeploy.ts"),
  });
  addVerb(tree, app, {
    usage: "rollback <app>",
    summary: "deploy an earlier release again, with its environment",
    options: (command) =>
      addWaitOptions(command).option(
        "--release <number>",
        "which one (default: the one before the present one)",
        count,
      ),
    load: () => import("./rollback.ts"),
  });
}

function addShareCommands(tree: Tree, app: Command): void {
  addVerb(tree, app, {
    usage: "share <app>",
    summary: "make the app's share link; this ends an earlier one",
    load: () => import("./share.ts"),
  });
  addVerb(tree, app, {
    usage: "unshare <app>",
    summary: "end the app's share link immediately",
    load: () => import("./unshare.ts"),
  });
}

const addWaitOptions = (command: Command): Command =>
  command.option("-w, --watch", "show the instances while they change").option("-d, --detach", "do not wait");

function addDeployOptions(command: Command): void {
  addWaitOptions(command)
    .option("--dry-run", "say what would be done, without doing it")
    .option("-f, --file <file>", "a JSON file with the fields of POST /v1/apps, such as flotilla.json; options win")
    .option("--replicas <number>", "how many instances serve (default: as before, 1 for a new app)", countOrZero)
    .option("--port <port>", "where instances listen (default: the first port that the image exposes, else 8080)", port)
    .option("--cpus <number>", "processors of each instance", count)
    .option("--memory <size>", "of each instance, such as 512m or 2g", memoryMb)
    .option("--env <name=value>", "a variable of its environment; repeat for more", pair)
    .option("--secret <name>", "as --env, encrypted and never shown: NAME, NAME=- or NAME=VALUE", collect)
    .option("--health <path>", "an instance is healthy while it answers GET <path> with 2xx or 3xx")
    .option("--domain <host>", "a host name to serve besides its own")
    .option("--private", "its address needs a key or its share link")
    .option("--no-network", "its instances do not reach the network")
    .option("--grace <time>", "how long open requests of an instance that leaves may continue (default: 10s)", seconds)
    .option("--beside <app>", "place instances beside those of this app, where that is possible")
    .optionsGroup("Strategy:")
    .addOption(
      new Option("--strategy <name>", "how instances are replaced (default: rolling)").choices([
        "rolling",
        "canary",
        "blueGreen",
      ]),
    )
    .option("--batch <number>", "rolling: how many are replaced at a time (default: 1)", count)
    .option("--canaries <number>", "canary: how many serve beside the others first (default: 1)", count)
    .option("--wait-for-promote", "canary: replace the others only after `flotilla app promote`")
    .option("--placing-deadline <time>", "roll back if instances do not run by then (default: 60s)", deadlineSeconds)
    .option("--health-deadline <time>", "roll back if they are not healthy by then (default: 3m)", deadlineSeconds);
}

/**
 * The verbs of `flotilla machine`, with their options.
 *
 * A table; each verb's code is in the file with its name.
 */
import { type Command, Option } from "commander";
import { count, countOrZero, diskGb, hook, memoryMb, pair, ports, seconds, since, collect } from "../arguments.ts";
import { addNoun, addVerb, type Tree } from "../command.ts";

export function addMachineCommands(tree: Tree, root: Command): void {
  const machine = addNoun(root, "machine", "make, run and remove machines");
  addVerb(tree, machine, {
    usage: "create <image> [command...]",
    summary: "make a machine from an image, such as alpine or local/busybox, or from a package",
    options: addCreateOptions,
    load: () => import("./create.ts"),
  }).usage("[options] <image> [-- <command...>]");
  addVerb(tree, machine, {
    usage: "ls",
    summary: "list machines",
    options: (command) => command.option("--label <name=value>", "only those with this label; repeat for more", pair),
    load: () => import("./ls.ts"),
  });
  addVerb(tree, machine, { usage: "get <machine>", summary: "show one machine", load: () => import("./get.ts") });
  addVerb(tree, machine, {
    usage: "start <machine>",
    summary: "boot a machine and wait until it runs",
    options: (command) =>
      command.option("-d, --detach", "do not wait").option("--explain", "show where the time went, in milliseconds"),
    load: () => import("./start.ts"),
  });
  addVerb(tree, machine, {
    usage: "stop <machines...>",
    summary: "shut machines down; their disks are kept",
    options: (command) =>
      command.option("--keep-memory", "suspend them: their memory is kept too, and a start continues their processes"),
    load: () => import("./stop.ts"),
  });
  addMoveCommands(tree, machine);
  addVerb(tree, machine, {
    usage: "rm <machines...>",
    summary: "delete machines in any state, with their disks",
    options: (command) => command.option("--usage", "show what each has used and cost"),
    load: () => import("./rm.ts"),
  });
  addRunningCommands(tree, machine);
  addCopyCommand(tree, machine);
  addBranchCommands(tree, machine);
  addPackageCommands(tree, machine);
  addAddressCommands(tree, machine);
  addVerb(tree, machine, {
    usage: "logs <machine>",
    summary: "show what a machine's workload has written, also when it is stopped",
    options: (command) =>
      command
        .option("-f, --follow", "wait for more, across stops and starts, until the machine is deleted")
        .option("-n, --tail <lines>", "how many of the last lines to begin with (default: 100)", countOrZero)
        .option("--since <time>", "begin there: a time ago such as 10m, or 2026-07-01T12:00:00Z", since)
        .option("--search <text>", "only lines that contain this text, in upper or lower case")
        .option("-t, --timestamps", "show when each line was written"),
    load: () => import("./logs.ts"),
  });
  addVerb(tree, machine, {
    usage: "explain <machine>",
    summary: "explain why a machine is on its node, or where it would be placed (needs an admin key)",
    load: () => import("./explain.ts"),
  });
  addVerb(tree, machine, {
    usage: "events <machine>",
    summary: "show what happened to a machine, oldest first",
    options: (command) =>
      command
        .option("-f, --follow", "wait for more until the machine is deleted")
        .option("--type <type>", "only those of this type, such as machine.failed"),
    load: () => import("./events.ts"),
  });
}

function addMoveCommands(tree: Tree, machine: Command): void {
  addVerb(tree, machine, {
    usage: "move <machine>",
    summary:
      "move a machine to another node, with its memory where possible; it is paused meanwhile (needs an admin key)",
    options: (command) =>
      command
        .option("--to <node>", "the node (default: the best one)")
        .option("--deadline <time>", "how long it may take, such as 90s or 2h (default: 1h)", seconds)
        .option("-d, --detach", "do not wait"),
    load: () => import("./move.ts"),
  });
  addVerb(tree, machine, {
    usage: "update <machines...>",
    summary: "change what a move or a drain may do to machines while they run, their end, or their labels",
    options: (command) =>
      command
        .addOption(disruption())
        .option("--ttl <time>", "end them this long after their creation, such as 2h; 0s: never", seconds)
        .addOption(atEnd())
        .option("--label <name=value>", "a label, instead of all that they have; repeat for more", pair),
    load: () => import("./update.ts"),
  });
}

/** Verbs that run something in a machine. */
function addRunningCommands(tree: Tree, machine: Command): void {
  addVerb(tree, machine, {
    usage: "exec <machine> <command...>",
    summary: "run a command in a machine, which is started if it is stopped",
    options: addExecOptions,
    load: () => import("./exec.ts"),
  })
    .usage("[options] <machine> -- <command...>")
    .showHelpAfterError("(an option of the command itself? put -- before the command)");
  addVerb(tree, machine, {
    usage: "code <machine> <file>",
    summary: "run a Python or JavaScript file in a machine, with its image's interpreter; - is standard input",
    options: (command) =>
      command
        .option("--language <language>", "python or javascript (default: from the file's name)")
        .option("-w, --cwd <path>", "where it runs (default: the machine's workdir)")
        .option("-e, --env <name=value>", "added to the machine's environment; repeat for more", pair)
        .option("--timeout <time>", "end it after this long, such as 90s (default: 10m)", seconds),
    load: () => import("./code.ts"),
  });
  addVerb(tree, machine, {
    usage: "sessions <machine>",
    summary: "list a machine's sessions, which `exec --session` makes",
    options: (command) => command.option("--rm <session>", "end this one"),
    load: () => import("./sessions.ts"),
  });
  addVerb(tree, machine, {
    usage: "shell <machine>",
    summary: "open a terminal in a machine, which is started if it is stopped",
    options: (command) => command.option("--program <path>", "what runs in it, such as /bin/bash (default: /bin/sh)"),
    load: () => import("./shell.ts"),
  });
}

function addBranchCommands(tree: Tree, machine: Command): void {
  addVerb(tree, machine, {
    usage: "branch [machine]",
    summary: "make machines that continue as a running machine is now, with its processes and its disk",
    options: (command) =>
      command
        .option("--from <checkpoint>", "as a checkpoint instead, which may have the disk alone: then they boot")
        .option(
          "--name <name>",
          "of a branch; repeat for more (default: the machine's or checkpoint's and a number)",
          collect,
        )
        .option("--count <count>", "how many, up to 64; all run, or none is left (default: 1)", count)
        .option("--with-secrets", "they have its secret variables; without this, a machine with some is not branched")
        .option(
          "--secret <name>",
          "a new value of one of its secret variables, given as to `machine create`; repeat for each",
          collect,
        ),
    load: () => import("./branch.ts"),
  });
  addVerb(tree, machine, {
    usage: "checkpoint <machine>",
    summary: "keep a machine as it is now, so that others can be made from it later; print the checkpoint's name or id",
    options: (command) =>
      command
        .option("--name <name>", "of the checkpoint; unique among yours")
        .option("--disk-only", "do not keep its memory (default: its memory too, if it runs)")
        .option("--with-secrets", "machines from it have its secret variables; without this, none with some is kept"),
    load: () => import("./checkpoint.ts"),
  });
  addVerb(tree, machine, {
    usage: "tree <machine>",
    summary: "show a machine with what it was branched from, its branches and their checkpoints",
    load: () => import("./tree.ts"),
  });
  addVerb(tree, machine, {
    usage: "diff <before> <after> [path]",
    summary: "show the files that differ between two running machines of one tree (default: all)",
    load: () => import("./diff.ts"),
  });
  addVerb(tree, machine, {
    usage: "adopt <clone>",
    summary: "give a branch the name, url, ports and share link of its source, which is deleted",
    options: (command) => command.option("--keep-source", "the source stays, under another name"),
    load: () => import("./adopt.ts"),
  });
}

/** Verbs between a machine, the registry and a directory. */
function addPackageCommands(tree: Tree, machine: Command): void {
  addVerb(tree, machine, {
    usage: "export <machine>",
    summary: "make a package of a stopped machine's disk, in the registry; print its reference",
    options: (command) =>
      command
        .option("--as <name>", "the package's name (default: the machine's)")
        .option("--tag <tag>", "the package's tag (default: latest)")
        .option("--env", "put the machine's environment into it; never its secret variables")
        .option("-d, --detach", "do not wait; print the operation")
        .addHelpText(
          "after",
          `
  $ flotilla machine export web --tag 1
  $ flotilla machine create web:1 --package --name copy --start`,
        ),
    load: () => import("./export.ts"),
  });
  addVerb(tree, machine, {
    usage: "inspect <reference>",
    summary: "show what a package holds, such as web:1",
    load: () => import("./inspect.ts"),
  });
  addVerb(tree, machine, {
    usage: "pull <reference> <directory>",
    summary: "write a package into a directory, as an OCI image layout",
    load: () => import("./pull.ts"),
  });
  addVerb(tree, machine, {
    usage: "push <directory> <reference>",
    summary: "send a package from an OCI image layout to the registry",
    options: (command) => command.option("--tag <tag>", "which of several packages in the directory"),
    load: () => import("./push.ts"),
  });
}

function addAddressCommands(tree: Tree, machine: Command): void {
  addVerb(tree, machine, {
    usage: "url <machine>",
    summary: "show the address of a machine's first published port",
    load: () => import("./url.ts"),
  });
  addVerb(tree, machine, {
    usage: "share <machine>",
    summary: "make the machine's share link; this ends an earlier one",
    load: () => import("./share.ts"),
  });
  addVerb(tree, machine, {
    usage: "unshare <machine>",
    summary: "end the machine's share link immediately",
    load: () => import("./unshare.ts"),
  });
  addVerb(tree, machine, {
    usage: "connect-token <machine>",
    summary: "make a token that opens the machine's published ports and nothing else",
    options: (command) => command.option("--ttl <time>", "how long it is valid, 1m to 24h (default: 1h)", seconds),
    load: () => import("./connect-token.ts"),
  });
}

function addCopyCommand(tree: Tree, machine: Command): void {
  addVerb(tree, machine, {
    usage: "cp <source> <destination>",
    summary: "copy a file from or to a machine: NAME:PATH is in a machine, - is standard input or output",
    options: (command) => command.option("-r, --recursive", "copy a directory with everything in it"),
    load: () => import("./cp.ts"),
  });
}

function addCreateOptions(command: Command): void {
  command
    .option("--name <name>", "letters, digits, '.', '_' and '-'; unique among your machines")
    .option("--start", "boot it and wait until it runs")
    .option("--branchable", "it may be branched while it runs")
    .option("--cpus <count>", "virtual processors (default: 4)", count)
    .option("--memory <size>", "such as 512m or 2g (default: 8g)", memoryMb)
    .option("--disk <size>", "such as 20g; only what is written takes space", diskGb)
    .option("-e, --env <name=value>", "environment of the machine and its commands; repeat for more", pair)
    .option(
      "--secret <name>",
      "as --env, but encrypted and never shown again: its value is this program's variable of the name, standard input with NAME=-, or NAME=VALUE; repeat for more",
      collect,
    )
    .option("--package", "the image is a package, such as web:1, which `machine export` makes")
    .option("-w, --workdir <path>", "where commands run (default: the image's)")
    .addOption(new Option("--network <mode>", "what the machine may reach").choices(["open", "blocked"]))
    .option("--allow-cidr <network>", "the machine may reach this network and no other; repeat for more", collect)
    .option("--allow-host <name>", "the machine may reach this host and no other; repeat for more", collect)
    .option("-p, --port <port>", "publish a port of the machine; repeat for more", ports)
    .option("--public", "its url needs no key")
    .option("--label <name=value>", "a label to find it by; repeat for more", pair)
    .option("--node-label <name=value>", "a label that its node must have; repeat for more", pair)
    .option("--dry-run", "create nothing; explain on which node it would be placed (needs an admin key)")
    .option("--ephemeral", "delete it once it is stopped")
    .option("--auto-stop <time>", "stop it after this long without use, such as 10m", seconds)
    .option("--ttl <time>", "end it this long after its creation, such as 2h", seconds)
    .addOption(atEnd())
    .addOption(
      new Option("--restart <when>", "after its VM crashed or its host went down").choices(["always", "never"]),
    )
    .addOption(disruption())
    .option(
      "--hook <moment=line>",
      "a line for the machine's shell at a moment: fork, resume, suspend or stop; repeat for more",
      hook,
    )
    .addHelpText(
      "after",
      `
The command runs whenever the machine starts, instead of the image's own; \`machine logs\` shows its output:
  $ flotilla machine create local/busybox --name web -p 8080 --start -- httpd -f -p 8080`,
    );
}

/** What becomes of a machine after its ttl. */
const atEnd = (): Option =>
  new Option("--at-end <what>", "what the end of the ttl does (default: delete)").choices([
    "delete",
    "suspend",
    "stop",
  ]);

/** How a machine that runs moves. */
const disruption = (): Option =>
  new Option(
    "--disruption <what>",
    "how it moves to another node: with its memory where possible (default), booting there, or staying stopped",
  ).choices(["migrate", "restart", "stop"]);

function addExecOptions(command: Command): void {
  command
    .option("-w, --cwd <path>", "where the command runs (default: the machine's workdir)")
    .option("-e, --env <name=value>", "added to the machine's environment; repeat for more", pair)
    .option("-u, --user <user>", "name or number, optionally with :group (default: the image's)")
    .option("--timeout <time>", "end the command after this long, such as 90s (default: 10m)", seconds)
    .option("-i, --interactive", "pass input to the command, which is the default")
    .option("-t, --tty", "run in a terminal, as `machine shell` does (also as -it)")
    .option("--session <id>", "continue with the directory and exported variables of the session's last line")
    .option("--background", "do not wait; print the process id")
    .option("--no-stdin", "pass no input to the command")
    .option("--no-shell", "run a single argument as a program too, as in an image without a shell")
    .option("--stream", "show output as it arrives, also with --json or --background")
    .option("--no-stream", "show output when the command has ended")
    .addHelpText(
      "after",
      `
Several arguments are a program and its arguments, passed unchanged; a single one is a line for the machine's shell:
  $ flotilla machine exec hello -- ls -l /
  $ flotilla machine exec hello 'ls / | wc -l'
Input is passed on when it is a pipe or a file. The command's exit code becomes the exit code of this program.`,
    );
}

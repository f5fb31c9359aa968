/**
 * The whole command tree, in the order in which help shows it.
 *
 * Always: building the tree loads no verb's code. A usage error ends with exit code 2, requested help with 0.
 */
import { type Setting, settings, type Program } from "@flotilla/contract/settings";
import { Command, CommanderError, Option } from "commander";
import { addAccountCommands } from "./account/commands.ts";
import { addAppCommands } from "./app/commands.ts";
import { addAuditCommands } from "./audit/commands.ts";
import { addAuthorityCommands } from "./authority/commands.ts";
import { addBackupCommands } from "./backup/commands.ts";
import { addBenchCommand } from "./bench/command.ts";
import { addBillingCommands } from "./billing/commands.ts";
import { addCheckpointCommands } from "./checkpoint/commands.ts";
import { addVerb, type Tree } from "./command.ts";
import { addEventsCommand } from "./events/commands.ts";
import { EXIT_USAGE } from "./failure.ts";
import { addImageCommands } from "./image/commands.ts";
import { addInvoiceCommands } from "./invoice/commands.ts";
import { addKeyCommands } from "./key/commands.ts";
import { addMachineCommands } from "./machine/commands.ts";
import { addMcpCommand } from "./mcp/commands.ts";
import { addNodeCommands } from "./node/commands.ts";
import { addOperationCommands } from "./operation/commands.ts";
import { addPackageCommands } from "./package/commands.ts";
import { addPlanCommands } from "./plan/commands.ts";
import { addTenantCommands } from "./tenant/commands.ts";
import { addPoolCommands } from "./pool/commands.ts";
import { addTokenCommands } from "./token/commands.ts";
import { addWebhookCommands } from "./webhook/commands.ts";

/** How many nouns are named for a verb without one. The most used ones come first. */
const NOUNS_MAX = 2;

/** Under "Use:". */
const USED: readonly ((tree: Tree, root: Command) => void)[] = [
  addMachineCommands,
  addAppCommands,
  addCheckpointCommands,
  addImageCommands,
  addPackageCommands,
  addOperationCommands,
  addEventsCommand,
  addWebhookCommands,
  addKeyCommands,
  addAuditCommands,
  addAccountCommands,
  addInvoiceCommands,
  addBillingCommands,
  addTenantCommands,
  addPlanCommands,
  addPoolCommands,
  addTokenCommands,
  addAuthorityCommands,
];

export function buildProgram(tree: Tree): Command {
  const { output, errors } = tree.world.streams;
  const root = new Command("flotilla")
    .description("Your own machines: persistent microVMs on hosts that you run.")
    .exitOverride()
    .configureOutput({
      writeOut: (text) => output.write(text),
      writeErr: (text) => errors.write(text),
      getOutHelpWidth: () => output.columns || 100,
      getErrHelpWidth: () => errors.columns || 100,
    })
    .configureHelp({ subcommandTerm: termOf })
    .showHelpAfterError("(--help shows the options)")
    .helpCommand(false)
    // `flotilla node VERB --data-dir …` is an option of the verb, though the program `node` has it as well.
    .enablePositionalOptions()
    .helpOption("-h, --help", "show this help");
  root.commandsGroup("Use:");
  for (const add of USED) add(tree, root);
  addVerb(tree, root, {
    usage: "login",
    summary: "save a server's address and a key for later calls",
    options: (command) => command.option("--key-stdin", "read the key from standard input"),
    load: () => import("./login/login.ts"),
  });
  addMcpCommand(tree, root);
  addVerb(tree, root, {
    usage: "console",
    summary: "print a link that signs a browser in to the console; it opens once, within ten minutes",
    load: () => import("./console/console.ts"),
  });
  root.commandsGroup("Run:");
  addProgram(tree, root, "up", "run a whole Flotilla on this machine: server, database and node");
  addProgram(tree, root, "server", "run a server only");
  addProgram(tree, root, "ingress", "run only the ingress to machines, beside a server on the same database");
  addBackupCommands(tree, root);
  addNodeCommands(tree, addProgram(tree, root, "node", "run a node only, which adds this machine to a server"));
  addVerb(tree, root, {
    usage: "doctor",
    summary: "explain what this machine can do and what is missing; with --fleet, what the nodes of the fleet need",
    options: (command) =>
      command
        .option("--fleet", "check all nodes and authorities through the server instead (needs an admin key)")
        .option("--cache-dir <directory>", "where set-up keeps its files (FLOTILLA_CACHE_DIR)"),
    load: () => import("./doctor/doctor.ts"),
  });
  addBenchCommand(tree, root);
  addVerb(tree, root, {
    usage: "version",
    summary: "print this program's version and the server's",
    load: () => import("./version.ts"),
  });
  addProgram(tree, root, "e2b", "run only the gateway for E2B's clients, beside a server").option(
    "--support",
    "print what of E2B's interface is served, and for which versions of its clients",
  );
  return root.addHelpText(
    "after",
    `
A first machine, once \`flotilla up\` runs:
  $ flotilla machine create local/busybox --name hello --start
  $ flotilla machine exec hello -- uname -a
  $ flotilla machine rm hello`,
  );
}

/** Name and operands, without the options that every command has. */
function termOf(command: Command): string {
  const operands = command.registeredArguments.map((operand) => {
    const name = operand.name() + (operand.variadic ? "..." : "");
    return operand.required ? `<${name}>` : `[${name}]`;
  });
  return [command.name(), ...operands].join(" ");
}

/** Adds a Flotilla program, with a flag for each of its settings that may appear in the process list. */
function addProgram(tree: Tree, root: Command, name: Exclude<Program, "cli">, summary: string): Command {
  return addVerb<Record<string, string | undefined>>(tree, root, {
    usage: name,
    summary,
    isRemote: false,
    options: (command) => {
      for (const setting of Object.values<Setting<unknown>>(settings)) {
        if (setting.flag === undefined || !setting.programs.includes(name)) continue;
        const text = `${setting.meaning} (${setting.env}; default: ${setting.defaultText})`;
        command.addOption(new Option(`--${setting.flag} <value>`, text));
      }
    },
    load: async () => (name === "up" ? import("./up/up.ts") : (await import("./up/one-program.ts"))[name]),
  });
}

/** A verb without its noun, as in `flotilla exec`, is refused with the nouns that have it. */
function refuseVerbAlone(root: Command, verb: string): void {
  const has = (command: Command): boolean =>
    command.commands.some((each) => each.name() === verb || each.aliases().includes(verb));
  const nouns = root.commands.filter(has).map((noun) => `flotilla ${noun.name()} ${verb}`);
  const lines = [`error: unknown command '${verb}'`, `(Did you mean ${nouns.slice(0, NOUNS_MAX).join(", or ")}?)`];
  if (nouns.length > 0) root.on("command:*", () => root.error(lines.join("\n"), { code: "commander.unknownCommand" }));
}

/**
 * `help`, `help machine` and `machine help`, as other programs have them, are `--help`. A noun has no command
 * of that name.
 */
function withHelp(root: Command, argv: readonly string[]): readonly string[] {
  const [first = "", second] = argv;
  if (first === "help") return [...argv.slice(1), "--help"];
  const isNoun = root.commands.some((command) => command.name() === first && command.commands.length > 0);
  return isNoun && second === "help" ? [first, ...argv.slice(2), "--help"] : argv;
}

/** Runs one command line and returns the exit code. Throws bugs of ours. */
export async function runProgram(
  build: (ended: (code: number) => void) => Command,
  argv: readonly string[],
): Promise<number> {
  let exitCode = 0;
  const root = build((code) => {
    exitCode = code;
  });
  try {
    refuseVerbAlone(root, argv[0] ?? "");
    const isVersion = argv.length === 1 && (argv[0] === "--version" || argv[0] === "-V");
    await root.parseAsync(isVersion ? ["version"] : withHelp(root, argv), { from: "user" });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    return error.exitCode === 0 ? 0 : EXIT_USAGE;
  }
  return exitCode;
}

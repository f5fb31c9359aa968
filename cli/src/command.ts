/**
 * Adds verbs to the command tree: usage, options and help immediately, code only when the verb is called, so
 * that `flotilla machine ls` loads nothing that only `flotilla up` needs.
 *
 * Always: every verb that talks to a server has the same four connection options, under their own heading of
 * the help.
 */
import type { Command } from "commander";
import { Call, type CommonOptions, type VerbModule, type World } from "./call.ts";
import { failureOf } from "./failure.ts";

/** Receives a verb's exit code, for main.ts. */
export type Ended = (exitCode: number) => void;

/** The root of the tree, and what its verbs receive. */
export interface Tree {
  readonly world: World;
  readonly ended: Ended;
}

export interface VerbDeclaration<Options> {
  /** Name and operands, as commander writes them: `create <image>`. */
  readonly usage: string;
  readonly summary: string;
  /** Adds the verb's own options and examples. */
  readonly options?: (command: Command) => void;
  readonly load: () => Promise<VerbModule<Options>>;
  /** False for verbs that talk to no server. */
  readonly isRemote?: false;
}

/** Verbs of other programs, each for one of ours. Lists of commands show only ours. */
const ALIASES: Readonly<Record<string, string>> = { ls: "list", rm: "delete" };

export function addVerb<Options>(tree: Tree, parent: Command, declaration: VerbDeclaration<Options>): Command {
  const command = parent.command(declaration.usage).description(declaration.summary);
  const alias = ALIASES[command.name()];
  if (alias !== undefined) command.alias(alias);
  declaration.options?.(command);
  if (declaration.isRemote !== false) addCommonOptions(command);
  return command.action(async () => {
    // The options have the type that the declaration says; commander's types cannot express that.
    const options = command.opts<CommonOptions & Options>();
    const call = new Call(tree.world, options);
    try {
      const module = await declaration.load();
      tree.ended((await module.run(call, command.args, options)) ?? 0);
    } catch (error) {
      const failure = failureOf(error, call.connection, namesOf(command));
      if (failure === null) throw error;
      call.output.error(failure.message, failure.advice);
      tree.ended(failure.exitCode);
    }
  });
}

/** As users write them: `--memory`, `<image>`. */
function namesOf(command: Command): readonly string[] {
  const options = command.options.flatMap(({ long }) => long ?? []);
  return [...options, ...command.registeredArguments.map((operand) => `<${operand.name()}>`)];
}

function addCommonOptions(command: Command): void {
  command
    .optionsGroup("Output and connection:")
    .option("--json", "print the API's JSON")
    .option("--url <url>", "the server's address (FLOTILLA_URL)")
    .option("--api-key-file <file>", "a file that holds the API key (FLOTILLA_API_KEY is the key itself)")
    .option("--data-dir <directory>", "the data directory of the server on this machine, for its admin key");
}

/** A folder of verbs, such as `machine`. */
export function addNoun(parent: Command, name: string, summary: string): Command {
  return parent.command(name).description(summary).helpCommand(false);
}

/**
 * `flotilla bench` on the command tree: its options and examples.
 */
import { type Command, InvalidArgumentError, Option } from "commander";
import { count, seconds } from "../arguments.ts";
import { addVerb, type Tree } from "../command.ts";
import { type BenchOptions, CREATE_MODES } from "./options.ts";

const STAGGER_MS_DEFAULT = 200;

export function addBenchCommand(tree: Tree, root: Command): void {
  addVerb<BenchOptions>(tree, root, {
    usage: "bench",
    summary: "measure how fast machines are here; removes what it makes",
    options: (command) =>
      command
        .addOption(new Option("--create <mode>", "only creates, as public leaderboards do").choices(CREATE_MODES))
        .option("--computesdk <folder>", "ComputeSDK's benchmark over its provider; its results go into the folder")
        .option("--command <line>", "with --computesdk: the first command; default: node -v")
        .option("--count <count>", "machines for each kind of measurement", count, 20)
        .option("--image <image>", "the image of the machines", "local/busybox")
        .option("--stagger <ms>", "with --create staggered: time between launches", milliseconds, STAGGER_MS_DEFAULT)
        .option(
          "--warm-up <time>",
          "first make and remove as many machines, then wait this long for VMs to be prepared",
          seconds,
        )
        .addHelpText(
          "after",
          `
Needs a running, otherwise idle Flotilla:
  $ flotilla bench
  $ flotilla bench --create burst --count 100 --warm-up 3m --json
  $ flotilla bench --computesdk results --count 100 --image local/e2b-code-interpreter`,
        ),
    load: () => import("./bench.ts"),
  });
}

/** Milliseconds, from a number without a unit. */
export function milliseconds(text: string): number {
  if (!/^\d{1,6}$/.test(text)) throw new InvalidArgumentError("Expected a number of milliseconds.");
  return Number(text);
}

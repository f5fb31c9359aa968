/**
 * `flotilla mcp` on the command tree: its options and examples.
 */
import type { Command } from "commander";
import { collect, count, micros } from "../arguments.ts";
import { addVerb, type Tree } from "../command.ts";
import type { McpOptions } from "./mcp.ts";

export function addMcpCommand(tree: Tree, root: Command): void {
  addVerb<McpOptions>(tree, root, {
    usage: "mcp",
    summary: "give an assistant tools for machines, files and apps (Model Context Protocol)",
    options: (command) =>
      command
        .option("--listen <address:port>", "serve HTTP at /mcp, with each caller's own key, instead of standard input")
        .option("--allow-host <name>", "with --listen: another name in callers' addresses; repeat for more", collect)
        .option("--machines <count>", "the most machines that a key may have made through it", count)
        .option("--spend-limit <amount>", "what the tenant may cost from now on; then nothing is started", micros)
        .option("--no-confirm", "do what cannot be undone without asking back, for clients that ask themselves")
        .addHelpText(
          "after",
          `
An assistant starts it by itself; its configuration names the command:
  $ flotilla mcp --machines 5 --spend-limit 2
  $ flotilla mcp --listen 127.0.0.1:8090`,
        ),
    load: () => import("./mcp.ts"),
  });
}

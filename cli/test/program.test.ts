/**
 * The command tree as a whole: every command is documented, describes its options, and supports the options
 * that all of them share.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import type { Command } from "commander";
import { buildProgram } from "../src/program.ts";

const { stdin: input, stdout: output, stderr: errors } = process;
const world = {
  environment: {},
  directory: "/",
  clock: systemClock,
  streams: { input, output, errors },
  onStopSignal: () => () => {},
  continueWithoutOutput: () => {},
  endWithCommand: () => {},
};

function verbs(command: Command, path: readonly string[] = []): (readonly [string, Command])[] {
  const below = command.commands.flatMap((child) => verbs(child, [...path, child.name()]));
  // A command with options does something itself.
  const isVerb = below.length === 0 || command.options.length > 0;
  return isVerb ? [[path.join(" "), command], ...below] : below;
}

const all = verbs(buildProgram({ world, ended: () => {} }));

test("every command is in docs/cli.md", () => {
  const page = readFileSync(new URL("../../docs/cli.md", import.meta.url), "utf8");
  for (const [path] of all) assert.match(page, new RegExp(`\`${path}\\b`), path);
});

test("every command has a summary, and every option says what it is for", () => {
  for (const [path, command] of all) {
    assert.notEqual(command.description(), "", path);
    for (const option of command.options) assert.notEqual(option.description, "", `${path} ${option.flags}`);
  }
});

test("every command that talks to a server has options for JSON, server and key", () => {
  for (const [path, command] of all) {
    if (["up", "server", "ingress", "node", "e2b", "backup", "restore"].includes(path)) continue;
    const flags = command.options.map((option) => option.long);
    for (const flag of ["--json", "--url", "--api-key-file", "--data-dir"])
      assert.ok(flags.includes(flag), path + flag);
  }
});

test("list and delete, which other programs say, are understood as ls and rm", () => {
  for (const [path, command] of all) {
    const word = { ls: "list", rm: "delete" }[command.name()];
    if (word === undefined) continue;
    const [understood, ...others] =
      command.parent?.commands.filter((each) => [each.name(), ...each.aliases()].includes(word)) ?? [];
    assert.equal(understood, command, path);
    assert.deepEqual(others, [], path);
  }
});

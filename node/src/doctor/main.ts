/**
 * A program of its own: prints what this host can do for Flotilla, as a JSON array of checks, and ends.
 *
 * Started by `flotilla doctor`, which shows it to people: the command line does not import the node agent. Takes the
 * settings of the environment that a start would take. Ends with 0 whatever it found; with 1 when a setting is wrong.
 */
import { systemClock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import { parseSettings } from "@flotilla/contract/settings";
import { judge } from "./judge.ts";
import { observeHost } from "./observe.ts";

try {
  // tidy-allow environment: the start of a program, as main.ts is of the node agent
  const settings = parseSettings(["dataDirectory", "cacheDirectory", "accelerator", "listen"], process.env);
  // tidy-allow environment: where programs are looked for is no setting of ours
  const searchPath = process.env["PATH"] ?? "";
  const facts = await observeHost({ ...settings, clock: systemClock, searchPath });
  process.stdout.write(`${JSON.stringify(judge(facts))}\n`);
} catch (error) {
  process.stderr.write(`doctor: ${messageOf(error)}\n`);
  process.exitCode = 1;
}

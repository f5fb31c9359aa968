/**
 * A separate program: prints what this host can do for Flotilla, as a JSON array of checks.
 *
 * `flotilla doctor` runs it and shows the checks; the command line does not import the node agent. Reads the
 * same environment settings as a start. Exits with 0 whatever it found, and with 1 when a setting is invalid.
 */
import { systemClock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import { parseSettings } from "@flotilla/contract/settings";
import { judge } from "./judge.ts";
import { observeHost } from "./observe.ts";

try {
  // tidy-allow environment: entry point of a program, like main.ts of the node agent
  const settings = parseSettings(["dataDirectory", "cacheDirectory", "accelerator", "listen"], process.env);
  // tidy-allow environment: the search path for programs is not one of our settings
  const searchPath = process.env["PATH"] ?? "";
  const facts = await observeHost({ ...settings, clock: systemClock, searchPath });
  process.stdout.write(`${JSON.stringify(judge(facts))}\n`);
} catch (error) {
  process.stderr.write(`doctor: ${messageOf(error)}\n`);
  process.exitCode = 1;
}

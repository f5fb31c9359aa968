/**
 * `npm run console:demo`: the console with plausible data, without VMs: a real server and three nodes with
 * the scripted driver, filled as the tests of pages fill theirs.
 *
 *     npm run console:demo                        # prints a link for the operator and one for a tenant's owner
 *     npm run console:demo -- --hostile           # also with names and texts that a page must not run
 *     npm run console:demo -- --machines 10000    # and so many more machines
 *     npm run console:demo -- --pictures /tmp/x   # writes a picture of every page there, and ends
 *
 * Always: it listens on loopback, its data is in a temporary directory, and nothing of it is left when it
 * ends: at Ctrl-C, SIGTERM, or when its terminal is closed.
 */
import { once } from "node:events";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import type { Client } from "../../server/test/support/client.ts";
import { FLEET_SETTINGS, fillFleet, makeMany } from "../support/console-fleet.ts";
import { startFlotilla } from "../support/flotilla.ts";
import { takePictures } from "./pictures.ts";

const MACHINES_MAX = 20_000;
const NODES = 3;

const { values } = parseArgs({
  options: {
    hostile: { type: "boolean", default: false },
    machines: { type: "string", default: "0" },
    pictures: { type: "string" },
    /** Which pages, by their addresses. */
    only: { type: "string", default: "" },
  },
});
const more = Number(values.machines);
if (!Number.isSafeInteger(more) || more < 0 || more > MACHINES_MAX)
  throw new Error(`--machines: a number up to ${MACHINES_MAX}`);

const stop = new AbortController();
// Also while it starts: what was started then ends in order.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => stop.abort());
const say = (line: string): unknown => process.stdout.write(`demo: ${line}\n`);

await main().catch((error: unknown) => {
  // A signal of the terminal reaches the server as well, so what was under way fails.
  if (stop.signal.aborted) return;
  say(error instanceof Error ? (error.stack ?? error.message) : String(error));
  process.exitCode = 1;
});

async function main(): Promise<void> {
  say("starting a server and three nodes; their VMs are scripted, nothing runs in them");
  await using flotilla = await startFlotilla({ nodes: NODES, serverEnvironment: () => FLEET_SETTINGS });
  if (stop.signal.aborted) return;
  await using fleet = await fillFleet(flotilla, { isHostile: values.hostile });
  await makeMany(flotilla, more);
  if (values.pictures !== undefined) await takePictures(flotilla, fleet, values.pictures, new RegExp(values.only));
  else await serve(flotilla.client(), fleet.ownerKey);
  say("ending");
}

/** Prints links until it is asked to end. */
async function serve(operator: Client, ownerKey: string): Promise<void> {
  const print = async (): Promise<void> => {
    say(`as the operator       ${await linkOf(operator)}`);
    say(`as a tenant's owner   ${await linkOf(operator.withKey(ownerKey))}`);
    say("each link opens once, within ten minutes. Enter prints new ones, Ctrl-C ends the demo.");
  };
  await print();
  const lines = createInterface({ input: process.stdin });
  lines.on("line", () => void print().catch((error: unknown) => say(String(error))));
  if (!stop.signal.aborted) await once(stop.signal, "abort");
  lines.close();
  process.stdin.destroy();
}

async function linkOf(client: Client): Promise<string> {
  const { json } = await client.post("/v1/console/links");
  return client.url + (json as { readonly path: string }).path;
}

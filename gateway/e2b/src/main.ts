/**
 * The program `flotilla e2b`: reads its settings, serves until it is asked to stop, or prints what is
 * supported.
 */
import { ownMessageOf } from "@flotilla/base/errors";
import { systemClock } from "@flotilla/base/clock";
import { STOP_SIGNALS } from "@flotilla/base/stop-signals";
import { parseSettings } from "@flotilla/contract/settings";
import { parseArgs } from "node:util";
import { startGateway } from "./gateway.ts";
import { createLog } from "./log.ts";
import { secretOf } from "./secret.ts";
import { supportTable } from "./support.ts";

const LISTEN = { host: "127.0.0.1", port: 3000 } as const;
const NAMES = ["serverUrl", "e2bListen", "e2bDomain", "dataDirectory", "logLevel"] as const;
const FLAGS = {
  serverUrl: "url",
  e2bListen: "e2b-listen",
  e2bDomain: "e2b-domain",
  dataDirectory: "data-dir",
  logLevel: "log-level",
};

async function main(): Promise<void> {
  const options = Object.fromEntries(Object.values(FLAGS).map((flag) => [flag, { type: "string" as const }]));
  const { values } = parseArgs({ options: { ...options, support: { type: "boolean" } } });
  if (values["support"] === true) return void process.stdout.write(`${supportTable()}\n`);
  const given = values as Readonly<Record<string, string | undefined>>;
  const flags = Object.fromEntries(Object.entries(FLAGS).map(([name, flag]) => [name, given[flag]]));
  const settings = parseSettings(NAMES, process.env, flags);
  const log = createLog(systemClock, settings.logLevel);
  const gateway = await startGateway({
    ...{ url: settings.serverUrl, listen: settings.e2bListen ?? LISTEN, domain: settings.e2bDomain },
    ...{
      secret: await secretOf(settings.dataDirectory),
      dataDirectory: settings.dataDirectory,
      clock: systemClock,
      log,
    },
  });
  const stop = (): void => void gateway.close().then(() => process.exit(0));
  for (const signal of STOP_SIGNALS) process.on(signal, stop);
  process.once("disconnect", stop);
  log.info({ url: gateway.url, server: settings.serverUrl }, "E2B's clients are served");
  const listening = { kind: "listening", url: gateway.url, nodeSocket: null, adminKey: null };
  process.send?.(listening, undefined, undefined, () => undefined);
}

try {
  await main();
} catch (error) {
  process.stderr.write(`flotilla e2b: ${ownMessageOf(error)}\n`);
  process.exit(1);
}

/**
 * A program for tests: boots one machine, says so, and waits to be killed, as may happen to a node agent at
 * any moment.
 *
 * Takes a JSON of {nodeDirectory, request}; prints `up` when the guest has answered.
 */
import { systemClock } from "@flotilla/base/clock";
import type { BootRequest } from "../../node/src/driver/driver.ts";
import { openQemuDriver } from "../../node/src/driver/qemu/index.ts";
import { makeLog } from "../../node/src/log.ts";
import { accelerator, cacheDirectory, deadline } from "./vm-fixture.ts";

const { nodeDirectory, request } = JSON.parse(process.argv[2] ?? "") as { nodeDirectory: string; request: BootRequest };
const log = makeLog({ level: "silent", clock: systemClock });
const driver = await openQemuDriver({
  nodeDirectory,
  cacheDirectory,
  accelerator,
  network: null,
  clock: systemClock,
  log,
});
await driver.boot(request, deadline());
process.stdout.write("up\n");

/**
 * How this host runs machines, and the guest channel of a running machine, without Flotilla in between.
 */
import { readdir, stat } from "node:fs/promises";
import path from "node:path";
import { systemClock } from "@flotilla/base/clock";
import { parseSettings } from "@flotilla/contract/settings";
import type { DriverFacts } from "../../node/src/driver/driver.ts";
import { bulkPathIn, openBulkDisk } from "../../node/src/driver/qemu/bulk.ts";
import { qemuFacts } from "../../node/src/driver/qemu/index.ts";
import { connectWhenReady } from "../../node/src/driver/qemu/sockets.ts";
import { connectGuest } from "../../node/src/guest/client.ts";
import type { Guest } from "../../node/src/guest/guest.ts";
import { makeLog } from "../../node/src/log.ts";

const { cacheDirectory } = parseSettings(["cacheDirectory"], process.env);
const BOOT_DEADLINE_MS = 60_000;
/** The digits of a boot's id that name its directory. */
const BOOT_NAME_LENGTH = 12;

/** How this host runs machines, as the node agent would choose. */
export async function vmFacts(): Promise<DriverFacts> {
  const log = makeLog({ level: "silent", clock: systemClock });
  return await qemuFacts({ cacheDirectory, accelerator: "auto", clock: systemClock, log });
}

/** The channel of a boot below the data directory, while no node agent holds it. */
export async function channelBelow(dataDirectory: string, bootId: string): Promise<Guest> {
  const names = await readdir(dataDirectory, { recursive: true });
  const home = bootId.slice("boot-".length, "boot-".length + BOOT_NAME_LENGTH);
  const [socket] = names.filter((name) => name.endsWith(`/${home}/guest.sock`));
  if (home === "" || socket === undefined) throw new Error(`no machine runs as "${bootId}" below ${dataDirectory}`);
  const place = path.join(dataDirectory, socket);
  const { uid } = await stat(place);
  const channel = await connectWhenReady({ path: place, uid }, systemClock, AbortSignal.timeout(BOOT_DEADLINE_MS));
  const bulk = await openBulkDisk({ path: bulkPathIn(path.dirname(place)), uid });
  return await connectGuest(channel, { helloTimeoutMs: BOOT_DEADLINE_MS, bulk });
}

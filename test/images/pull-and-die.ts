/**
 * A node agent reduced to its images: pulls one and prints its progress, so that crash.test.ts can kill it at
 * any step.
 *
 *     node pull-and-die.ts DIRECTORY REFERENCE
 */
import { systemClock } from "@flotilla/base/clock";
import { openImages } from "@flotilla/node/images/store";
import { makeLog } from "@flotilla/node/log";
import { HOST_ARCH } from "../support/images.ts";
import { launcherPath } from "../support/launcher.ts";

const [directory = "", reference = ""] = process.argv.slice(2);
const images = await openImages({
  directory,
  launcher: await launcherPath(),
  cacheDirectory: directory,
  arch: HOST_ARCH,
  allowedRegistries: ["127.0.0.1:*"],
  mirrors: new Map(),
  insecureRegistries: [],
  credentialsPath: null,
  cacheBytesMax: 20e9,
  digestsInUse: () => Promise.resolve(new Set()),
  clock: systemClock,
  log: makeLog({ level: "silent", clock: systemClock }),
});
await images.ensure(reference, {
  arch: null,
  tenantId: null,
  onProgress: ({ message }) => process.stdout.write(`${message}\n`),
});
process.stdout.write("done\n");

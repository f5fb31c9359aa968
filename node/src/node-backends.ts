/**
 * The backends of the node agent, chosen by the driver: the driver itself, images, disks and the host's
 * resources.
 *
 * The only place that depends on which driver is used. The FAKE backends are for tests of the control plane:
 * no VMs, no images, empty disks, and resources that no test exhausts.
 */
import { realpath } from "node:fs/promises";
import { arch } from "node:os";
import { join } from "node:path";
import type { Clock } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";
import type { NodeResources } from "@flotilla/contract/link/link";
import type { NewEvent } from "@flotilla/contract/event-types";
import type { NodeConfig } from "./config.ts";
import type { Disks } from "./disks/disks.ts";
import { openQcow2Disks } from "./disks/disks.ts";
import type { Driver } from "./driver/driver.ts";
import { fakeDisks } from "./driver/fake/disks.ts";
import { FakeImages } from "./driver/fake/images.ts";
import { FakeDriver } from "./driver/fake/index.ts";
import { readProgram } from "./driver/fake/vm-file.ts";
import { JAIL_NAME } from "./driver/qemu/guest-files.ts";
import { makeGuestFiles, openQemuDriver } from "./driver/qemu/index.ts";
import type { Images } from "./images/images.ts";
import type { CallServer } from "./images/own-registry.ts";
import { openImages } from "./images/store.ts";
import { makeResourceObserver } from "./link/resources.ts";
import { openNetwork } from "./network/network.ts";
import { ipv4NetworksOf } from "./network/policy.ts";

export interface NodeBackends extends AsyncDisposable {
  readonly driver: Driver;
  readonly images: Images;
  readonly disks: Disks;
  readonly observeResources: () => Promise<NodeResources>;
  /** Keeps guests from these places (`host:port`) of the fleet, and from no others. Never rejects. */
  closeToGuests(places: readonly string[]): Promise<void>;
  /** Builds the images that come with Flotilla. Call after adoption: it may remove others to make room. */
  prepareImages(): Promise<void>;
}

export interface NodeBackendsOptions {
  readonly config: NodeConfig;
  readonly clock: Clock;
  readonly log: Log;
  /** Digests of the images that machines depend on now. Throws before that is known. */
  readonly imagesInUse: () => Promise<ReadonlySet<string>>;
  /** Reaches the fleet's own registry. */
  readonly callServer: CallServer;
  readonly environmentOf: (machineId: string) => Readonly<Record<string, string>>;
  /** Adds an event to a machine's timeline. */
  readonly onEvent: (machineId: string, event: NewEvent) => void;
}

/** The architecture in the notation of image configurations. */
export function nodeArch(): "amd64" | "arm64" {
  return arch() === "arm64" ? "arm64" : "amd64";
}

/** Throws an Error with a user-facing message when the host does not support the driver. */
export async function openNodeBackends(options: NodeBackendsOptions): Promise<NodeBackends> {
  return await (options.config.driver === "fake" ? openFake(options) : openQemu(options));
}

/** Makes the guest files in the cache, without a node. Throws an Error for people if set-up has not run. */
export async function checkSetUp({ driver, cacheDirectory }: NodeConfig): Promise<void> {
  if (driver !== "fake") await makeGuestFiles(cacheDirectory);
}

const FAKE_RESOURCES: NodeResources = {
  totalCpus: 65_536,
  totalMemoryMb: 128 * 1024 * 1024,
  availableMemoryMb: 128 * 1024 * 1024,
  totalDiskGb: 16 * 1024 * 1024,
  availableDiskGb: 16 * 1024 * 1024,
  usedCpus: 0,
  usedMemoryMb: 0,
  usedDiskGb: 0,
  pressure: null,
};

async function openFake({ config, clock, log, environmentOf }: NodeBackendsOptions): Promise<NodeBackends> {
  const { machinesDirectory, nodeDirectory } = config;
  // A test that writes the file installs another program.
  const programPath = join(nodeDirectory, "fake-program");
  const program = await readProgram(programPath);
  return {
    driver: new FakeDriver({ machinesDirectory, environmentOf, clock, log, program, programPath }),
    images: new FakeImages(clock, nodeArch()),
    disks: fakeDisks,
    observeResources: () => Promise.resolve(FAKE_RESOURCES),
    closeToGuests: () => Promise.resolve(),
    prepareImages: () => Promise.resolve(),
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

async function openQemu({
  config,
  clock,
  log,
  imagesInUse,
  callServer,
  onEvent,
}: NodeBackendsOptions): Promise<NodeBackends> {
  if (process.getuid?.() !== 0) {
    throw new Error("the qemu driver runs each machine as a separate user, so the node agent must run as root");
  }
  const guestFiles = await makeGuestFiles(config.cacheDirectory);
  const launcher = join(guestFiles.directory, JAIL_NAME);
  const images = await openImages({
    directory: config.imagesDirectory,
    launcher,
    cacheDirectory: config.cacheDirectory,
    arch: nodeArch(),
    allowedRegistries: config.allowedRegistries,
    mirrors: config.registryMirrors,
    insecureRegistries: config.insecureRegistries,
    credentialsPath: config.registryCredentials,
    cacheBytesMax: config.imageCacheGb * 1024 ** 3,
    digestsInUse: imagesInUse,
    callServer,
    clock,
    log,
  });
  const { nodeDirectory, cacheDirectory, accelerator, publishOnLoopback } = config;
  const blockedNetworks = ipv4NetworksOf(config.blockedNetworks);
  const onDenied = (machineId: string, detail: string): void =>
    onEvent(machineId, { type: "machine.egressDenied", data: { detail } });
  const networkDirectory = await realpath(nodeDirectory);
  const network = await openNetwork({
    nodeDirectory: networkDirectory,
    publishOnLoopback,
    blockedNetworks,
    clock,
    log,
    onDenied,
  });
  return {
    driver: await openQemuDriver({ nodeDirectory, cacheDirectory, accelerator, network, clock, log }),
    images,
    disks: openQcow2Disks({ launcher, clock }),
    observeResources: makeResourceObserver(nodeDirectory),
    closeToGuests: (places) => network.closed.close(places),
    prepareImages: async () => {
      await images.ensureLocalBusybox().catch((error: unknown) => {
        log.warn({ error }, "local/busybox could not be built; other images are not affected");
      });
      images.keepCollecting();
    },
    [Symbol.asyncDispose]: async () => {
      await network[Symbol.asyncDispose]();
      await images[Symbol.asyncDispose]();
    },
  };
}

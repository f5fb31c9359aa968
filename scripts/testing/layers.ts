/**
 * The layers of tests, in the order in which they run: quick and informative ones first.
 *
 * Always:
 * - Every *.test.ts of the repository belongs to exactly one layer, the first whose pattern matches, so no test file
 *   is missed.
 * - Layers run one after the other.
 * - A layer runs more files at a time than two processors are full with, because tests wait a lot. Deadlines grow with the
 *   host's load (test/support/until.ts).
 */
import { globSync } from "node:fs";

export interface Layer {
  readonly name: string;
  /** A short description, for `npm test -- --list`. */
  readonly holds: string;
  readonly fits: (path: string) => boolean;
  /** How many test files run at the same time. */
  readonly concurrency: number;
  /** Runs only when it is named. */
  readonly isOnDemand?: boolean;
  /** What its files print is part of the result, also when nothing failed. */
  readonly isShown?: boolean;
  /** On a host without other load. A test file is ended and fails after this time, unless FLOTILLA_TEST_FILE_MINUTES says otherwise. */
  readonly fileTimeoutMs: number;
}

const SECOND_MS = 1000;

export const LAYERS: readonly Layer[] = [
  {
    name: "pure",
    holds: "tests beside the code, of scripts and of the repository: no process, no network, no database",
    fits: (path) =>
      /^(base|contract|server|node|sdk|cli)\/src\//.test(path) || /^(scripts|bench|test\/house)\//.test(path),
    concurrency: 2,
    fileTimeoutMs: 60 * SECOND_MS,
  },
  {
    name: "kvm",
    holds: "real machines under KVM, in a host that QEMU emulates; several minutes each",
    fits: (path) => path.startsWith("test/kvm/"),
    concurrency: 1,
    isOnDemand: true,
    fileTimeoutMs: 3600 * SECOND_MS,
  },
  {
    name: "proof",
    holds:
      "a whole cluster of real machines on one host, in which each cable is pulled and each process killed and stopped",
    fits: (path) => path.startsWith("test/proof/"),
    concurrency: 1,
    isOnDemand: true,
    isShown: true,
    fileTimeoutMs: 3600 * SECOND_MS,
  },
  {
    name: "vm",
    holds: "real machines under QEMU, and their network",
    fits: (path) => /^(test\/vm|test\/network|node\/test\/vm)\//.test(path),
    concurrency: 2,
    fileTimeoutMs: 900 * SECOND_MS,
  },
  {
    name: "crash",
    holds: "programs killed at random moments",
    fits: (path) => path.startsWith("test/crash/") || /(^|[/-])crash[^/]*\.test\.ts$/.test(path),
    concurrency: 2,
    fileTimeoutMs: 600 * SECOND_MS,
  },
  {
    name: "simulation",
    holds: "the shipped servers and node agents in a simulated cluster, in virtual time",
    fits: (path) => path.startsWith("test/simulation/"),
    // Each plays seeds on all processors.
    concurrency: 1,
    fileTimeoutMs: 1800 * SECOND_MS,
  },
  {
    name: "programs",
    holds: "everything else: the API on a real PostgreSQL, the guest agent on a socketpair, the command line, clusters",
    fits: () => true,
    concurrency: 3,
    fileTimeoutMs: 600 * SECOND_MS,
  },
];

/** The order in which layers run; the patterns above are tried in their own order. */
export const LAYER_ORDER: readonly string[] = ["pure", "programs", "simulation", "crash", "vm", "kvm", "proof"];

/** All test files of the checkout at `root`, by the name of their layer; paths are relative to it. */
export function testFilesByLayer(root: string): ReadonlyMap<string, readonly string[]> {
  const found = globSync("{base,contract,server,node,guest,sdk,cli,test,scripts,bench}/**/*.test.ts", {
    cwd: root,
    exclude: (name) => name.includes("node_modules"),
  });
  const byLayer = new Map<string, string[]>(LAYER_ORDER.map((name) => [name, []]));
  for (const path of found.toSorted()) {
    const layer = LAYERS.find((each) => each.fits(path));
    if (layer !== undefined) byLayer.get(layer.name)?.push(path);
  }
  return byLayer;
}

/**
 * The layers of tests, and which of them run at the same time.
 *
 * Always:
 * - Every *.test.ts of the repository belongs to exactly one layer, the first whose pattern matches, so no
 *   test file is missed.
 * - Stages run one after the other. The files of a stage's layers run at the same time, in the order of
 *   schedule.ts. Deadlines grow with the host's load (test/support/until.ts).
 */
import { globSync } from "node:fs";

export interface Layer {
  readonly name: string;
  /** A short description, for `npm test -- --list`. */
  readonly holds: string;
  readonly fits: (path: string) => boolean;
  /** Number of processes that its files share. Other files have a process each. */
  readonly processes?: number;
  /** How many processors a file keeps busy that was never recorded. */
  readonly load: number;
  /** Nothing runs beside a file of it. */
  readonly isAlone?: boolean;
  /** Runs only when it is named. */
  readonly isOnDemand?: boolean;
  /** What its files print is part of the result, also when nothing failed. */
  readonly isShown?: boolean;
  /**
   * On a host without other load. A test file is ended and fails after this time, unless
   * FLOTILLA_TEST_FILE_MINUTES says otherwise.
   */
  readonly fileTimeoutMs: number;
}

const SECOND_MS = 1000;

export const LAYERS: readonly Layer[] = [
  {
    name: "pure",
    holds: "tests beside the code, of scripts and of the repository: no process, no network, no database",
    fits: (path) =>
      /^(base|contract|server|node|sdk|cli|console|providers\/[a-z-]+)\/src\//.test(path) ||
      /^(scripts|bench|test\/house)\//.test(path),
    processes: 8,
    load: 1,
    fileTimeoutMs: 60 * SECOND_MS,
  },
  {
    name: "kvm",
    holds: "real machines under KVM, in a host that QEMU emulates; several minutes each",
    fits: (path) => path.startsWith("test/kvm/"),
    load: 2,
    isAlone: true,
    isOnDemand: true,
    fileTimeoutMs: 3600 * SECOND_MS,
  },
  {
    name: "proof",
    holds:
      "a whole cluster of real machines on one host, in which each cable is pulled and each process killed and stopped",
    fits: (path) => path.startsWith("test/proof/"),
    load: 2,
    isAlone: true,
    isOnDemand: true,
    isShown: true,
    fileTimeoutMs: 3600 * SECOND_MS,
  },
  {
    name: "vm",
    holds: "real machines under QEMU, and their network",
    fits: (path) => /^(test\/vm|test\/network|node\/test\/vm)\//.test(path),
    load: 1.2,
    fileTimeoutMs: 900 * SECOND_MS,
  },
  {
    name: "crash",
    holds: "programs killed at random moments",
    fits: (path) => path.startsWith("test/crash/") || /(^|[/-])crash[^/]*\.test\.ts$/.test(path),
    load: 0.5,
    fileTimeoutMs: 600 * SECOND_MS,
  },
  {
    name: "simulation",
    holds: "the shipped servers and node agents in a simulated cluster, in virtual time",
    fits: (path) => path.startsWith("test/simulation/"),
    isShown: true,
    load: 2,
    fileTimeoutMs: 1800 * SECOND_MS,
  },
  {
    name: "traffic",
    holds: "an app in everything that may happen to it, while its clients count",
    fits: (path) => path.startsWith("test/traffic/"),
    isShown: true,
    load: 1.2,
    isAlone: true,
    fileTimeoutMs: 1200 * SECOND_MS,
  },
  {
    name: "programs",
    holds: "everything else: the API on a real PostgreSQL, the guest agent on a socketpair, the command line, clusters",
    fits: () => true,
    load: 0.7,
    fileTimeoutMs: 600 * SECOND_MS,
  },
];

/**
 * The layers of each stage, quick and informative ones first; their patterns above are tried in their own
 * order.
 */
export const STAGES: readonly (readonly string[])[] = [
  ["pure"],
  ["programs", "traffic", "simulation", "crash", "vm"],
  ["kvm"],
  ["proof"],
];

/** All test files of the checkout at `root`, by the name of their layer; paths are relative to it. */
export function testFilesByLayer(root: string): ReadonlyMap<string, readonly string[]> {
  const found = globSync(
    "{base,contract,server,node,guest,sdk,gateway,providers,cli,console,test,scripts,bench}/**/*.test.ts",
    {
      cwd: root,
      exclude: (name) => name.includes("node_modules"),
    },
  );
  const byLayer = new Map<string, string[]>(STAGES.flat().map((name) => [name, []]));
  for (const path of found.toSorted()) {
    const layer = LAYERS.find((each) => each.fits(path));
    if (layer !== undefined) byLayer.get(layer.name)?.push(path);
  }
  return byLayer;
}

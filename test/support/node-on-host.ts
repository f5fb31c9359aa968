/**
 * A node's VMM processes, files and network state on its host, inspected without the agent.
 *
 * A VMM belongs to the machine whose disk it has open, whatever its command line says: a prepared one keeps
 * its first name. Only while there is no disk yet its name counts, and `prepared` and `template` belong to no
 * machine.
 */
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import { blockOf } from "../../node/src/network/addresses.ts";
import { CLAIMS_DIRECTORY } from "../../node/src/network/claims.ts";

export interface VmmProcess {
  readonly pid: number;
  /** The machine of the command line, or `prepared` or `template`. */
  readonly name: string;
  readonly bootId: string;
  /** Machines whose disk it has open, and the one that it was started for. */
  readonly machines: readonly string[];
}

/** The VMMs of a node directory. */
export function vmmsOf(nodeDirectory: string): readonly VmmProcess[] {
  const disks = disksOf(nodeDirectory);
  const found: VmmProcess[] = [];
  for (const entry of readdirSync("/proc")) {
    if (!/^\d+$/.test(entry)) continue;
    const argv = textOf(`/proc/${entry}/cmdline`).split("\0");
    const [, name = "", bootId = "", place] = /^guest=([^/@]+)\/([^/@]+)@(.*)$/s.exec(nameIn(argv)) ?? [];
    if (argv[0]?.includes("qemu-system") !== true || place !== nodeDirectory) continue;
    const opened = filesOpenIn(entry).map((file) => disks.get(file));
    const machines = new Set(opened.filter((machine) => machine !== undefined));
    if (name !== "prepared" && name !== "template") machines.add(name);
    found.push({ pid: Number(entry), name, bootId, machines: [...machines] });
  }
  return found;
}

/** Faults of prepared VMs: each must have one VMM and one directory. */
export function faultsOfWaiting(nodeDirectory: string): readonly string[] {
  const directories = namesIn(join(nodeDirectory, "prepared"));
  const waiting = vmmsOf(nodeDirectory).filter(({ name, machines }) => name === "prepared" && machines.length === 0);
  const homes = waiting.map(({ bootId }) => bootId.slice("boot-".length, "boot-".length + 12));
  return [
    ...directories.filter((name) => !homes.includes(name)).map((name) => `directory prepared/${name} has no VMM`),
    ...waiting
      .filter((_, at) => !directories.includes(homes[at] ?? ""))
      .map(({ pid, bootId }) => `VMM ${pid} of ${bootId} waits and has no directory`),
  ];
}

/** The claim file of a node's block of addresses; undefined when it holds none. */
export function claimOf(nodeDirectory: string): string | undefined {
  return namesIn(CLAIMS_DIRECTORY).find((name) => textOf(join(CLAIMS_DIRECTORY, name)) === nodeDirectory);
}

/** The host's network state for a block: interfaces, rules, and the name server's address. */
export function networkOf(claim: string): readonly string[] {
  const block = blockOf(Number.parseInt(claim, 16));
  const interfaces = namesIn("/sys/class/net").filter((name) => name.startsWith(block.hostEndPrefix));
  const tables = execFileSync("nft", ["list", "tables"], { encoding: "utf8" }).split("\n");
  const addresses = (networkInterfaces()["lo"] ?? []).map(({ address }) => address);
  return [
    ...interfaces.map((name) => `interface ${name}`),
    ...tables.filter((line) => line.endsWith(` ${block.table}`)),
    ...addresses.filter((address) => address === block.nameServer).map((address) => `address ${address}`),
    ...(namesIn(CLAIMS_DIRECTORY).includes(claim) ? [`claim ${claim}`] : []),
  ];
}

function nameIn(argv: readonly string[]): string {
  const at = argv.indexOf("-name");
  return at === -1 ? "" : (argv[at + 1] ?? "").replaceAll(",,", ",");
}

/** Machines by the device and inode of their disk's file. */
function disksOf(nodeDirectory: string): ReadonlyMap<string, string> {
  const machines = join(nodeDirectory, "machines");
  const pairs = namesIn(machines).map((id) => [fileAt(join(machines, id, "disk")), id] as const);
  return new Map(pairs.filter((pair): pair is [string, string] => pair[0] !== undefined));
}

function filesOpenIn(pid: string): readonly string[] {
  const directory = `/proc/${pid}/fd`;
  return namesIn(directory)
    .map((fd) => fileAt(join(directory, fd)))
    .filter((file) => file !== undefined);
}

// A file may disappear at any moment: then it does not exist.

function fileAt(path: string): string | undefined {
  try {
    const { dev, ino } = statSync(path);
    return `${dev}:${ino}`;
  } catch {
    return undefined;
  }
}

function namesIn(directory: string): readonly string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}

function textOf(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

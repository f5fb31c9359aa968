/**
 * The host's side of the machines' network: the node's nftables tables, its name server's address, IP
 * forwarding, and room for neighbours.
 *
 * Owns what belongs to the node's block on the host (see claims.ts), and the guard table. The guard table
 * stays until the host restarts, because forwarding is not turned off again either: other programs may rely
 * on it by then. The room for neighbours stays too.
 *
 * Always:
 * - each start of the agent replaces everything in one transaction, also under running machines; their
 *   connections survive;
 * - the interfaces of machines are not removed here; they vanish with their VMM's namespace.
 *
 * After a crash the next agent of this directory replaces everything again; if there is none, the next
 * Flotilla on this host removes what is abandoned.
 */
import { existsSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import type { Block } from "./addresses.ts";
import { abandonedBlocks, claimBlock, releaseBlock } from "./claims.ts";
import { NFT, run } from "./programs.ts";
import { closedTableOf, guardRules, hostRules } from "./rules.ts";

const FORWARDING = "/proc/sys/net/ipv4/ip_forward";
const NEIGHBOURS = "/proc/sys/net/ipv4/neigh/default";
/**
 * The kernel has one table of neighbours for all namespaces. Each running machine needs three, and each
 * address of the host's network that a guest tries in vain is one for 3 s: about 5,000 of one guest.
 */
const NEIGHBOURS_MAX = 65_536;
const TUN = "/dev/net/tun";
const MACHINES_GONE_MS = 1_000;
const POLL_MS = 20;

export interface HostNetworkOptions {
  readonly claimsDirectory: string;
  readonly nodeDirectory: string;
  readonly log: Log;
}

/** Throws an Error with a user-facing message when this host cannot carry machines' traffic. */
export async function openHostNetwork({ claimsDirectory, nodeDirectory, log }: HostNetworkOptions): Promise<Block> {
  for (const block of await abandonedBlocks(claimsDirectory).catch(() => [])) {
    log.info({ block: block.network }, "removing the network of a node whose directory is gone");
    await removeFromHost(block);
    await releaseBlock(claimsDirectory, block);
  }
  try {
    if (!existsSync(TUN)) await run(["modprobe", "tun"]);
    await run(["conntrack", "--count"]);
    const block = await claimBlock(claimsDirectory, nodeDirectory);
    await run(NFT, hostRules(block));
    await run(["ip", "address", "replace", `${block.nameServer}/32`, "dev", "lo"]);
    await enableForwarding(log);
    await makeRoomForNeighbours(log);
    return block;
  } catch (error) {
    throw new Error(
      "the network of machines cannot be set up (requires root, nftables, iproute2, conntrack, and a kernel with tun, " +
        `veth and nf_tables): ${messageOf(error)}`,
      { cause: error },
    );
  }
}

/** Removes the node's part of the host's network, unless machines still run on it. */
export async function closeHostNetwork(claimsDirectory: string, block: Block, clock: Clock): Promise<void> {
  const deadline = clock.monotonic() + MACHINES_GONE_MS;
  // A namespace disappears shortly after its last process.
  while (await hasMachines(block)) {
    if (clock.monotonic() > deadline) return;
    await clock.sleep(POLL_MS);
  }
  await removeFromHost(block);
  await releaseBlock(claimsDirectory, block);
}

async function enableForwarding(log: Log): Promise<void> {
  if ((await readFile(FORWARDING, "utf8")).trim() !== "0") return;
  await run(NFT, guardRules());
  await writeFile(FORWARDING, "1\n");
  log.info({}, "enabled IP forwarding on this host, for packets of machines only");
}

/** `settings`: the kernel's directory of them, which only the first network namespace has. */
export async function makeRoomForNeighbours(log: Log, settings = NEIGHBOURS): Promise<void> {
  // Beyond the second the kernel looks for some to remove, beyond the third it adds none.
  const atLeast = { gc_thresh3: NEIGHBOURS_MAX, gc_thresh2: NEIGHBOURS_MAX / 2 };
  for (const [name, least] of Object.entries(atLeast)) {
    const path = join(settings, name);
    const present = await readFile(path, "utf8").catch(() => null);
    if (present === null || Number(present) >= least) continue;
    await writeFile(path, `${least}\n`).catch((error: unknown) => {
      log.warn({ path, reason: messageOf(error) }, "guests may fill this host's table of neighbours");
    });
  }
}

async function removeFromHost(block: Block): Promise<void> {
  const { table, nameServer } = block;
  for (const each of [table, closedTableOf(block)])
    await run(NFT, `add table ip ${each}\ndelete table ip ${each}\n`).catch(() => {});
  await run(["ip", "address", "delete", `${nameServer}/32`, "dev", "lo"]).catch(() => {});
}

/** Checks the names of the interfaces in this process's network namespace. */
async function hasMachines({ hostEndPrefix }: Block): Promise<boolean> {
  const lines = (await readFile("/proc/self/net/dev", "utf8")).split("\n");
  return lines.some((line) => line.trimStart().startsWith(hostEndPrefix));
}

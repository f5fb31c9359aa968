/**
 * The host's side of the machines' network: the node's table, its name server's address, and forwarding.
 *
 * Owns what belongs to the node's block on the host (see claims.ts), and the guard table, which stays until the host
 * restarts: it goes with forwarding, which is not turned off again, because by then others may rely on it.
 *
 * Always: made anew as one transaction at each start of the agent, under running machines too; their connections go
 * on. The interfaces of machines are not ours to remove: they vanish with their VMM's namespace. If the process dies,
 * the next agent of this directory does it again, or the next Flotilla on this host removes what is abandoned.
 */
import { existsSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import type { Block } from "./addresses.ts";
import { abandonedBlocks, claimBlock, releaseBlock } from "./claims.ts";
import { NFT, run } from "./programs.ts";
import { guardRules, hostRules } from "./rules.ts";

const FORWARDING = "/proc/sys/net/ipv4/ip_forward";
const TUN = "/dev/net/tun";
const ABSENCE_MS = 1_000;
const LOOK_MS = 20;

export interface HostNetworkOptions {
  readonly claimsDirectory: string;
  readonly nodeDirectory: string;
  readonly log: Log;
}

/** Throws an Error for people when this host can not carry machines' traffic. */
export async function openHostNetwork({ claimsDirectory, nodeDirectory, log }: HostNetworkOptions): Promise<Block> {
  for (const block of await abandonedBlocks(claimsDirectory).catch(() => [])) {
    log.info({ block: block.network }, "removing the network of a node whose directory is gone");
    await removeFromHost(block);
    await releaseBlock(claimsDirectory, block);
  }
  try {
    if (!existsSync(TUN)) await run(["modprobe", "tun"]);
    const block = await claimBlock(claimsDirectory, nodeDirectory);
    await run(NFT, hostRules(block));
    await run(["ip", "address", "replace", `${block.nameServer}/32`, "dev", "lo"]);
    await forward(log);
    return block;
  } catch (error) {
    throw new Error(
      "the network of machines can not be set up (it takes root, nftables, iproute2, and a kernel with tun, veth and " +
        `nf_tables): ${messageOf(error)}`,
      { cause: error },
    );
  }
}

/** Removes the node's part of the host's network, unless machines still run on it. */
export async function closeHostNetwork(claimsDirectory: string, block: Block, clock: Clock): Promise<void> {
  const until = clock.monotonic() + ABSENCE_MS;
  // A namespace goes a moment after the last process in it.
  while (await hasMachines(block)) {
    if (clock.monotonic() > until) return;
    await clock.sleep(LOOK_MS);
  }
  await removeFromHost(block);
  await releaseBlock(claimsDirectory, block);
}

async function forward(log: Log): Promise<void> {
  if ((await readFile(FORWARDING, "utf8")).trim() !== "0") return;
  await run(NFT, guardRules());
  await writeFile(FORWARDING, "1\n");
  log.info({}, "this host forwards packets from now on, those of machines only");
}

async function removeFromHost({ table, nameServer }: Block): Promise<void> {
  await run(NFT, `add table ip ${table}\ndelete table ip ${table}\n`).catch(() => {});
  await run(["ip", "address", "delete", `${nameServer}/32`, "dev", "lo"]).catch(() => {});
}

/** By the names of the interfaces in this process's network namespace. */
async function hasMachines({ hostEndPrefix }: Block): Promise<boolean> {
  const lines = (await readFile("/proc/self/net/dev", "utf8")).split("\n");
  return lines.some((line) => line.trimStart().startsWith(hostEndPrefix));
}

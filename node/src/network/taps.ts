/**
 * Which of the interfaces in a namespace is that of a VMM, while two VMMs of one machine share it
 * (docs/decisions/0065-new-vmms.md).
 *
 * Always: a VMM's interface is the one that its process has open, whatever it is called. Names alone do not
 * say it after a crash of the agent.
 */
import { readdir, readFile, readlink } from "node:fs/promises";
import { FORMER_TAP_NAME, NEXT_TAP_NAME, TAP_NAME } from "./addresses.ts";
import { inNamespaceOf, IP, run } from "./programs.ts";
import { onlyTap } from "./rules.ts";

const NAMES: readonly string[] = [TAP_NAME, NEXT_TAP_NAME, FORMER_TAP_NAME];
const TUN_DEVICE = "/dev/net/tun";

/**
 * Gives the guest's packets to the VMM's interface, and removes those of other VMMs. Rejects when the VMM has
 * none.
 */
export async function keepTapOf(pid: number): Promise<void> {
  const taps = tapsIn(await readFile(`/proc/${pid}/net/dev`, "utf8"));
  if (taps.length === 1 && taps[0] === TAP_NAME) return;
  const own = await tapOf(pid);
  const others = taps.filter((name) => name !== own);
  await run(inNamespaceOf(pid, IP), onlyTap(own, others));
}

/** The names of machines' interfaces in a list of the kernel. Pure. */
export function tapsIn(devices: string): readonly string[] {
  const names = [...devices.matchAll(/^\s*([^\s:]+):/gm)].map(([, name = ""]) => name);
  return names.filter((name) => NAMES.includes(name));
}

/** The interface that a process has open. */
async function tapOf(pid: number): Promise<string> {
  for (const fd of await readdir(`/proc/${pid}/fd`)) {
    const target = await readlink(`/proc/${pid}/fd/${fd}`).catch(() => "");
    if (target !== TUN_DEVICE) continue;
    const [, name] = /^iff:\s*(\S+)/m.exec(await readFile(`/proc/${pid}/fdinfo/${fd}`, "utf8")) ?? [];
    if (name !== undefined && NAMES.includes(name)) return name;
  }
  throw new Error("the VMM has no network interface");
}

/**
 * What the facts about a host mean for Flotilla, and what to do about them. Pure.
 *
 * Always: `bad` is what keeps machines from running here; `warn` is what makes them slow or will trouble somebody
 * later; every check says what was found and, unless all is well, what to do.
 */
import type { HostFacts, ListenState } from "./observe.ts";

export interface Check {
  readonly name: string;
  readonly status: "ok" | "warn" | "bad";
  /** What was found. */
  readonly value: string;
  /** What it means, and what to do about it. */
  readonly meaning: string;
}

/** A machine of the default size, and what the host itself needs. */
const MEMORY_MB_MIN = 9_216;
const MEMORY_MB_LEAST = 1_024;
const DISK_GB_MIN = 20;
const DISK_GB_LEAST = 2;
/** File times and clocks may differ by a time zone that was set wrongly when the files were copied. */
const CLOCK_SLACK_MS = 24 * 3_600_000;

export function judge(facts: HostFacts): readonly Check[] {
  return [
    judgeUser(facts),
    judgePrograms(facts),
    ...judgeDriver(facts),
    judgeJail(facts),
    judgeNetwork(facts),
    judgeMemory(facts),
    judgeDisk(facts),
    judgeListen(facts),
    judgeClock(facts),
    judgeCgroups(facts),
    judgeBusybox(facts),
  ];
}

function judgeUser({ isRoot }: HostFacts): Check {
  if (isRoot) return { name: "user", status: "ok", value: "root", meaning: "every machine gets a user of its own" };
  const meaning = "machines get users and namespaces of their own, which takes root: start Flotilla with sudo";
  return { name: "user", status: "bad", value: "not root", meaning };
}

function judgePrograms({ missingPrograms }: HostFacts): Check {
  const name = "programs";
  if (missingPrograms.length === 0) return { name, status: "ok", value: "all there", meaning: "" };
  const meaning = "sh scripts/setup installs them on Debian; elsewhere install the packages they come in";
  return { name, status: "bad", value: `missing: ${missingPrograms.join(", ")}`, meaning };
}

function judgeDriver({ driver, arch, processors }: HostFacts): readonly Check[] {
  if ("failure" in driver) {
    const meaning =
      arch === "x64" ? "sh scripts/setup makes what is missing" : `machines need an x86-64 host for now, not ${arch}`;
    return [{ name: "machines", status: "bad", value: driver.failure, meaning }];
  }
  const runtime: Check = { name: "runtime", status: "ok", value: driver.runtime, meaning: "what machines run on" };
  if (driver.accelerator === "kvm") {
    const value = `kvm, ${processors} processors`;
    return [runtime, { name: "accelerator", status: "ok", value, meaning: driver.acceleratorReason }];
  }
  const value = `none: machines are emulated, on ${processors} processors`;
  const meaning = `everything works, several times slower than with KVM; ${driver.acceleratorReason}`;
  return [runtime, { name: "accelerator", status: "warn", value, meaning }];
}

function judgeJail({ jailFailure, isRoot }: HostFacts): Check {
  const name = "isolation";
  if (!isRoot) return { name, status: "warn", value: "not tried", meaning: "run the doctor as root to know" };
  if (jailFailure === null) return { name, status: "ok", value: "namespaces can be made", meaning: "" };
  const meaning = "machines are put into mount and network namespaces; in a container it takes CAP_SYS_ADMIN";
  return { name, status: "bad", value: jailFailure, meaning };
}

function judgeNetwork({ networkFailure, isRoot }: HostFacts): Check {
  const name = "network";
  if (!isRoot) return { name, status: "warn", value: "not tried", meaning: "run the doctor as root to know" };
  if (networkFailure === null) return { name, status: "ok", value: "taps, pairs and rules can be made", meaning: "" };
  const meaning =
    "no machine starts without: it takes nftables, iproute2 and a kernel with tun, veth and nf_tables; in a container " +
    "CAP_NET_ADMIN and /dev/net/tun";
  return { name, status: "bad", value: networkFailure, meaning };
}

function judgeMemory({ memory: { totalMb, availableMb } }: HostFacts): Check {
  const name = "memory";
  const value = `${gigabytes(availableMb)} of ${gigabytes(totalMb)} GB available`;
  if (totalMb < MEMORY_MB_LEAST) return { name, status: "bad", value, meaning: "too little for any machine" };
  if (availableMb >= MEMORY_MB_MIN) return { name, status: "ok", value, meaning: "" };
  const meaning = "a machine may use 8 GB unless it is created with less (--memory)";
  return { name, status: "warn", value, meaning };
}

function judgeDisk({ disk: { path, totalGb, freeGb } }: HostFacts): Check {
  const name = "disk";
  const value = `${freeGb} of ${totalGb} GB free at ${path}`;
  if (freeGb >= DISK_GB_MIN) return { name, status: "ok", value, meaning: "" };
  const meaning = "images and disks grow there; free some, or choose another place with FLOTILLA_DATA_DIR";
  return { name, status: freeGb < DISK_GB_LEAST ? "bad" : "warn", value, meaning };
}

const LISTEN: Readonly<Record<ListenState, readonly [Check["status"], string, string]>> = {
  free: ["ok", "free", ""],
  flotilla: ["ok", "a Flotilla runs there", ""],
  taken: [
    "warn",
    "taken by something else",
    "choose another with FLOTILLA_LISTEN=host:port, or end what listens there",
  ],
  elsewhere: ["bad", "not an address of this host", "choose another with FLOTILLA_LISTEN=host:port"],
  forbidden: [
    "bad",
    "not allowed for this user",
    "ports below 1024 take root; choose another with FLOTILLA_LISTEN=host:port",
  ],
};

function judgeListen({ listen: { address, state } }: HostFacts): Check {
  const [status, words, meaning] = LISTEN[state];
  return {
    name: "listen",
    status,
    value: `${address} is ${state === "flotilla" ? `taken: ${words}` : words}`,
    meaning,
  };
}

function judgeClock({ clock: { now, lastInstallAt, isSynchronized } }: HostFacts): Check {
  const name = "clock";
  const value = `${new Date(now).toISOString()}${isSynchronized === true ? ", synchronized" : ""}`;
  if (now < lastInstallAt - CLOCK_SLACK_MS) {
    const meaning = "it is behind the files of this program: certificates, keys and bills will be wrong; set the clock";
    return { name, status: "bad", value, meaning };
  }
  if (isSynchronized !== false) return { name, status: "ok", value, meaning: "guests get their time from it" };
  const meaning = "nothing keeps it right, and guests get their time from it: timedatectl set-ntp true";
  return { name, status: "warn", value: `${value}, not synchronized`, meaning };
}

function judgeCgroups({ cgroups, hasDiskWeights, isRoot }: HostFacts): Check {
  const name = "cgroups";
  if (cgroups === "v1" || cgroups === "v2") {
    const bounded = "each machine's memory, tasks and processors are bounded";
    if (hasDiskWeights)
      return { name, status: "ok", value: cgroups, meaning: `${bounded}, and disks are shared by weight` };
    const meaning = `${bounded}, but this kernel weighs no disk requests (io.weight): a machine that writes much slows others and the database`;
    return { name, status: "warn", value: `${cgroups}, without weights for disks`, meaning };
  }
  if (cgroups === "read-only" && !isRoot) {
    return { name, status: "warn", value: "not tried", meaning: "run the doctor as root to know" };
  }
  const value = cgroups === "none" ? "none for memory" : "can not be written";
  const meaning =
    "machines run, but nothing keeps a faulty VMM from the host's memory: boot with cgroup v2 and its memory controller; " +
    "in a container give it a writable /sys/fs/cgroup";
  return { name, status: "warn", value, meaning };
}

function judgeBusybox({ hasLocalBusybox }: HostFacts): Check {
  const name = "image local/busybox";
  if (hasLocalBusybox)
    return { name, status: "ok", value: "at hand", meaning: "machines can be tried without a registry" };
  return { name, status: "warn", value: "missing", meaning: "sh scripts/setup makes it from Debian's busybox-static" };
}

function gigabytes(mb: number): string {
  return (mb / 1024).toFixed(1);
}

/**
 * What the facts about a host mean for Flotilla, and what to do about them. Pure.
 *
 * Always:
 * - `bad` prevents machines from running here; `warn` makes them slow or will cause trouble later;
 * - every check says what was found and, unless all is well, what to do.
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

/** A machine of the default size, plus the host's own needs. */
const MEMORY_MB_RECOMMENDED = 9_216;
const MEMORY_MB_REQUIRED = 1_024;
const DISK_GB_RECOMMENDED = 20;
const DISK_GB_REQUIRED = 2;
/** The database has 1,500 when it is made. */
const DISK_FILES_REQUIRED = 5_000;
/** Tolerates file times from another time zone. */
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
    judgeKernel(facts),
    judgeBusybox(facts),
  ];
}

function judgeUser({ isRoot, missingUserIds }: HostFacts): Check {
  if (isRoot && missingUserIds !== null) {
    const meaning =
      "each machine gets one of these as its user: start Flotilla outside the namespace or container, or map them into it";
    const value = `root of a user namespace without the ids ${missingUserIds}`;
    return { name: "user", status: "bad", value, meaning };
  }
  if (isRoot) return { name: "user", status: "ok", value: "root", meaning: "every machine gets its own user" };
  const meaning = "creating users and namespaces for machines requires root: start Flotilla with sudo";
  return { name: "user", status: "bad", value: "not root", meaning };
}

function judgePrograms({ missingPrograms }: HostFacts): Check {
  const name = "programs";
  if (missingPrograms.length === 0) return { name, status: "ok", value: "all installed", meaning: "" };
  const meaning = "sh scripts/setup installs them on Debian; elsewhere install the packages that contain them";
  return { name, status: "bad", value: `missing: ${missingPrograms.join(", ")}`, meaning };
}

function judgeDriver({ driver, arch, processors }: HostFacts): readonly Check[] {
  if ("failure" in driver) {
    const meaning =
      arch === "x64" ? "sh scripts/setup creates missing files" : `machines need an x86-64 host for now, not ${arch}`;
    return [{ name: "machines", status: "bad", value: driver.failure, meaning }];
  }
  const runtime: Check = { name: "runtime", status: "ok", value: driver.runtime, meaning: "what machines run on" };
  if (driver.accelerator === "kvm") {
    const value = `kvm, ${processors} processors`;
    return [runtime, { name: "accelerator", status: "ok", value, meaning: driver.acceleratorReason }];
  }
  const value = `none: machines are emulated on ${processors} processors`;
  const meaning = `everything works, several times slower than with KVM; ${driver.acceleratorReason}`;
  return [runtime, { name: "accelerator", status: "warn", value, meaning }];
}

function judgeJail({ jailFailure, usersFailure, isRoot }: HostFacts): Check {
  const name = "isolation";
  if (!isRoot) return { name, status: "warn", value: "not checked", meaning: "run the doctor as root to check" };
  if (jailFailure === null && usersFailure !== null) {
    const meaning =
      "programs that read images run without a separate user namespace; they keep their view, their few " +
      "capabilities and the filter of system calls. The kernel's user.max_user_namespaces should not be 0";
    return { name, status: "warn", value: usersFailure, meaning };
  }
  if (jailFailure === null) return { name, status: "ok", value: "namespaces can be created", meaning: "" };
  const meaning = "machines run in separate mount and network namespaces; in a container this requires CAP_SYS_ADMIN";
  return { name, status: "bad", value: jailFailure, meaning };
}

function judgeNetwork({ networkFailure, isRoot }: HostFacts): Check {
  const name = "network";
  if (!isRoot) return { name, status: "warn", value: "not checked", meaning: "run the doctor as root to check" };
  if (networkFailure === null)
    return { name, status: "ok", value: "tap and veth devices and nftables rules can be created", meaning: "" };
  const meaning =
    "machines cannot start without nftables, iproute2, conntrack and a kernel with tun, veth and nf_tables; a container needs " +
    "CAP_NET_ADMIN and /dev/net/tun";
  return { name, status: "bad", value: networkFailure, meaning };
}

function judgeMemory({ memory: { totalMb, availableMb } }: HostFacts): Check {
  const name = "memory";
  const value = `${gigabytes(availableMb)} of ${gigabytes(totalMb)} GB available`;
  if (totalMb < MEMORY_MB_REQUIRED) return { name, status: "bad", value, meaning: "too little for any machine" };
  if (availableMb >= MEMORY_MB_RECOMMENDED) return { name, status: "ok", value, meaning: "" };
  const meaning = "a machine may use 8 GB unless it is created with less (--memory)";
  return { name, status: "warn", value, meaning };
}

function judgeDisk({ disk: { path, totalGb, freeGb, freeFiles, failure } }: HostFacts): Check {
  const name = "disk";
  if (failure !== null) {
    const meaning = "the data directory cannot be used: choose another one with --data-dir or FLOTILLA_DATA_DIR";
    return { name, status: "bad", value: `${path}: ${failure}`, meaning };
  }
  if (freeFiles !== null && freeFiles < DISK_FILES_REQUIRED) {
    const meaning =
      "its inodes are used up, which fails like a full disk: remove files, or choose another directory with FLOTILLA_DATA_DIR";
    return { name, status: "bad", value: `room for ${freeFiles} more files at ${path}`, meaning };
  }
  const value = `${freeGb} of ${totalGb} GB free at ${path}`;
  if (freeGb >= DISK_GB_RECOMMENDED) return { name, status: "ok", value, meaning: "" };
  const meaning = "images and disks grow there: free some space, or choose another directory with FLOTILLA_DATA_DIR";
  return { name, status: freeGb < DISK_GB_REQUIRED ? "bad" : "warn", value, meaning };
}

const LISTEN: Readonly<Record<ListenState, readonly [Check["status"], string, string]>> = {
  free: ["ok", "free", ""],
  flotilla: ["ok", "a Flotilla runs there", ""],
  taken: [
    "warn",
    "in use by another program",
    "choose another address with FLOTILLA_LISTEN=host:port, or stop the program that uses it",
  ],
  elsewhere: ["bad", "not an address of this host", "choose another address with FLOTILLA_LISTEN=host:port"],
  forbidden: [
    "bad",
    "not permitted for this user",
    "ports below 1024 require root; choose another with FLOTILLA_LISTEN=host:port",
  ],
};

function judgeListen({ listen: { address, state } }: HostFacts): Check {
  const [status, text, meaning] = LISTEN[state];
  return {
    name: "listen",
    status,
    value: `${address} is ${state === "flotilla" ? `in use: ${text}` : text}`,
    meaning,
  };
}

function judgeClock({ clock: { now, lastInstallAt, isSynchronized } }: HostFacts): Check {
  const name = "clock";
  const value = `${new Date(now).toISOString()}${isSynchronized === true ? ", synchronized" : ""}`;
  if (now < lastInstallAt - CLOCK_SLACK_MS) {
    const meaning =
      "it is behind the files of this program, so certificates, keys and bills will be wrong: set the clock";
    return { name, status: "bad", value, meaning };
  }
  if (isSynchronized !== false) return { name, status: "ok", value, meaning: "guests use it" };
  const meaning = "no service synchronizes it, and guests use it: run timedatectl set-ntp true";
  return { name, status: "warn", value: `${value}, not synchronized`, meaning };
}

function judgeCgroups({ cgroups, hasDiskWeights, isRoot }: HostFacts): Check {
  const name = "cgroups";
  if (cgroups === "v1" || cgroups === "v2") {
    const limited = "each machine's memory, tasks and processors are limited";
    if (hasDiskWeights)
      return { name, status: "ok", value: cgroups, meaning: `${limited}, and disks are shared by weight` };
    const meaning = `${limited}, but this kernel does not weight disk requests (io.weight): a machine that writes a lot slows down others and the database`;
    return { name, status: "warn", value: `${cgroups}, without disk weights`, meaning };
  }
  if (cgroups === "read-only" && !isRoot) {
    return { name, status: "warn", value: "not checked", meaning: "run the doctor as root to check" };
  }
  const value = cgroups === "none" ? "none for memory" : "not writable";
  const meaning =
    "machines run, but nothing limits the memory of a faulty VMM: boot with cgroup v2 and its memory controller; " +
    "give a container a writable /sys/fs/cgroup";
  return { name, status: "warn", value, meaning };
}

/** The first kernel that says which pages a process has written since it was asked last. */
const WATCHING_KERNEL = [6, 7] as const;

function judgeKernel({ kernel }: HostFacts): Check {
  const name = "kernel";
  const [major = 0, minor = 0] = kernel.split(".").map((part) => Number.parseInt(part, 10));
  const [first, second] = WATCHING_KERNEL;
  if (major > first || (major === first && minor >= second))
    return { name, status: "ok", value: kernel, meaning: "machines move to other nodes while they run" };
  const meaning = "before Linux 6.7 a machine that moves is paused while all of its memory is saved and sent";
  return { name, status: "warn", value: kernel, meaning };
}

function judgeBusybox({ hasLocalBusybox }: HostFacts): Check {
  const name = "image local/busybox";
  if (hasLocalBusybox)
    return { name, status: "ok", value: "present", meaning: "lets you try machines without a registry" };
  return { name, status: "warn", value: "missing", meaning: "sh scripts/setup builds it from Debian's busybox-static" };
}

function gigabytes(mb: number): string {
  return (mb / 1024).toFixed(1);
}

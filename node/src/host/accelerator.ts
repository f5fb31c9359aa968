/**
 * Chooses hardware virtualization or emulation by a trial boot.
 *
 * A /dev/kvm that can be opened is not enough: under some nested hypervisors a stock guest kernel hangs
 * within its first instructions, under others the VMM aborts. So a tiny guest is booted with KVM and given a
 * few seconds.
 *
 * Owns `<cache>/accelerator.json`: the verdict, valid while host boot, QEMU and guest files stay the same. A
 * guest that did not answer in time may have been slowed down by a busy host, so that verdict expires after
 * an hour. Always: the choice comes with its reason, for `doctor`, the node's labels and the log.
 */
import { randomUUID } from "node:crypto";
import { constants } from "node:fs";
import { access, mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { messageOf } from "@flotilla/base/errors";

export interface AcceleratorVerdict {
  readonly accelerator: "kvm" | "tcg";
  readonly reason: string;
}

export interface AcceleratorOptions {
  readonly setting: "auto" | "kvm" | "tcg";
  readonly cacheDirectory: string;
  /** Everything else that the verdict depends on: the versions of QEMU and the guest's files. */
  readonly versions: string;
  /** Boots a tiny guest with KVM. `silent`: its agent did not answer in time. Rejects when the VMM failed. */
  readonly probe: () => Promise<"answered" | "silent">;
  /** Epoch milliseconds. */
  readonly now: number;
}

/** A saved verdict. `until` (epoch milliseconds) is null if it is valid as long as its key matches. */
interface Trial extends AcceleratorVerdict {
  readonly until: number | null;
}

const KVM_DEVICE = "/dev/kvm";
const SILENT_MS = 60 * 60_000;

export async function chooseAccelerator(options: AcceleratorOptions): Promise<AcceleratorVerdict> {
  const { setting } = options;
  if (setting !== "auto") return { accelerator: setting, reason: `FLOTILLA_ACCELERATOR is ${setting}` };
  try {
    await access(KVM_DEVICE, constants.R_OK | constants.W_OK);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const why = code === "ENOENT" ? "does not exist" : "cannot be opened";
    return { accelerator: "tcg", reason: `hardware virtualization needs ${KVM_DEVICE}, which ${why}` };
  }
  const key = `${await hostBootId()} ${options.versions}`;
  const path = join(options.cacheDirectory, "accelerator.json");
  const saved = await readSaved(path, key, options.now);
  if (saved !== undefined) return saved;
  const { until, ...verdict } = await tryKvm(options, path);
  await save(path, { key, until, ...verdict });
  return verdict;
}

async function tryKvm({ probe, now }: AcceleratorOptions, path: string): Promise<Trial> {
  const failed = (why: string, retry: string): string =>
    `${KVM_DEVICE} exists, but a guest did not boot with it: ${why}; the next attempt is ${retry}, or once ${path} is removed`;
  try {
    if ((await probe()) === "answered") return { accelerator: "kvm", reason: "a guest booted with KVM", until: null };
    const reason = failed("it did not answer in time", "at the first start of the node agent after an hour");
    return { accelerator: "tcg", reason, until: now + SILENT_MS };
  } catch (error) {
    return { accelerator: "tcg", reason: failed(messageOf(error), "after the host's next boot"), until: null };
  }
}

async function hostBootId(): Promise<string> {
  return (await readFile("/proc/sys/kernel/random/boot_id", "utf8")).trim();
}

async function readSaved(path: string, key: string, now: number): Promise<AcceleratorVerdict | undefined> {
  try {
    const saved = JSON.parse(await readFile(path, "utf8")) as Record<string, unknown>;
    const { accelerator, reason, until } = saved;
    if (saved["key"] !== key || (accelerator !== "kvm" && accelerator !== "tcg")) return undefined;
    // The upper bound keeps a clock that was set back from extending the verdict.
    if (until !== null && !(typeof until === "number" && until > now && until <= now + SILENT_MS)) return undefined;
    return { accelerator, reason: String(reason) };
  } catch {
    return undefined; // Missing or damaged: try again.
  }
}

async function save(path: string, verdict: object): Promise<void> {
  await mkdir(join(path, ".."), { recursive: true });
  // Random and not the process id: agents in different PID namespaces may share the cache directory.
  const unfinished = `${path}.new-${randomUUID()}`;
  await writeFile(unfinished, `${JSON.stringify(verdict)}\n`);
  await rename(unfinished, path);
}

/**
 * Chooses hardware virtualization or emulation by trying.
 *
 * A /dev/kvm that opens proves nothing: under some nested hypervisors a stock guest kernel never gets past its first
 * instructions, under others the VMM aborts. So a tiny guest is booted with KVM, and has a few seconds.
 *
 * Owns `<cache>/accelerator.json`: the verdict, kept for as long as host boot, QEMU and guest files stay the same.
 * Always: what is chosen comes with its reason, for `doctor`, the node's labels and the log.
 */
import { constants } from "node:fs";
import { access, mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { messageOf } from "../log.ts";

export interface AcceleratorVerdict {
  readonly accelerator: "kvm" | "tcg";
  readonly reason: string;
}

export interface AcceleratorQuestion {
  readonly setting: "auto" | "kvm" | "tcg";
  readonly cacheDirectory: string;
  /** Everything else that the verdict depends on: versions of QEMU and of the guest's files. */
  readonly versions: string;
  /** Boots a tiny guest with KVM; rejects when its agent does not answer in time. */
  readonly probe: () => Promise<void>;
}

const KVM_DEVICE = "/dev/kvm";

export async function chooseAccelerator(question: AcceleratorQuestion): Promise<AcceleratorVerdict> {
  const { setting } = question;
  if (setting !== "auto") return { accelerator: setting, reason: `FLOTILLA_ACCELERATOR is ${setting}` };
  try {
    await access(KVM_DEVICE, constants.R_OK | constants.W_OK);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const why = code === "ENOENT" ? "does not exist" : "can not be opened";
    return { accelerator: "tcg", reason: `${KVM_DEVICE} ${why}, which hardware virtualization needs` };
  }
  const key = `${await hostBootId()} ${question.versions}`;
  const path = join(question.cacheDirectory, "accelerator.json");
  const kept = await readKept(path, key);
  if (kept !== undefined) return kept;
  const verdict = await tried(question.probe, path);
  await keep(path, { key, ...verdict });
  return verdict;
}

async function tried(probe: () => Promise<void>, path: string): Promise<AcceleratorVerdict> {
  try {
    await probe();
    return { accelerator: "kvm", reason: "a guest booted with KVM" };
  } catch (error) {
    const reason =
      `${KVM_DEVICE} is there, but a guest did not boot with it: ${messageOf(error)}; ` +
      `tried again after the host's next boot, or when ${path} is removed`;
    return { accelerator: "tcg", reason };
  }
}

async function hostBootId(): Promise<string> {
  return (await readFile("/proc/sys/kernel/random/boot_id", "utf8")).trim();
}

async function readKept(path: string, key: string): Promise<AcceleratorVerdict | undefined> {
  try {
    const kept = JSON.parse(await readFile(path, "utf8")) as Record<string, unknown>;
    const { accelerator, reason } = kept;
    if (kept["key"] !== key || (accelerator !== "kvm" && accelerator !== "tcg")) return undefined;
    return { accelerator, reason: String(reason) };
  } catch {
    return undefined; // There is none, or it is damaged: then it is made anew.
  }
}

async function keep(path: string, verdict: object): Promise<void> {
  await mkdir(join(path, ".."), { recursive: true });
  await writeFile(`${path}.new-${process.pid}`, `${JSON.stringify(verdict)}\n`);
  await rename(`${path}.new-${process.pid}`, path);
}

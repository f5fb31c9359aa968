/**
 * Chooses hardware virtualization or emulation by trying.
 *
 * A /dev/kvm that opens proves nothing: under some nested hypervisors a stock guest kernel never gets past its first
 * instructions, under others the VMM aborts. So a tiny guest is booted with KVM, and has a few seconds.
 *
 * Owns `<cache>/accelerator.json`: the verdict, kept for as long as host boot, QEMU and guest files stay the same. A guest
 * that only did not answer in time may have been kept from it by a busy host, so that is believed for an hour.
 * Always: what is chosen comes with its reason, for `doctor`, the node's labels and the log.
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

export interface AcceleratorQuestion {
  readonly setting: "auto" | "kvm" | "tcg";
  readonly cacheDirectory: string;
  /** Everything else that the verdict depends on: versions of QEMU and of the guest's files. */
  readonly versions: string;
  /** Boots a tiny guest with KVM. `silent`: its agent did not answer in time. Rejects when the VMM failed. */
  readonly probe: () => Promise<"answered" | "silent">;
  /** Epoch milliseconds. */
  readonly now: number;
}

/** What is kept: `until` (epoch milliseconds) is null for a verdict that holds as long as its key. */
interface Trial extends AcceleratorVerdict {
  readonly until: number | null;
}

const KVM_DEVICE = "/dev/kvm";
const SILENT_MS = 60 * 60_000;

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
  const kept = await readKept(path, key, question.now);
  if (kept !== undefined) return kept;
  const { until, ...verdict } = await tried(question, path);
  await keep(path, { key, until, ...verdict });
  return verdict;
}

async function tried({ probe, now }: AcceleratorQuestion, path: string): Promise<Trial> {
  const failed = (why: string, again: string): string =>
    `${KVM_DEVICE} is there, but a guest did not boot with it: ${why}; tried again ${again}, or when ${path} is removed`;
  try {
    if ((await probe()) === "answered") return { accelerator: "kvm", reason: "a guest booted with KVM", until: null };
    const reason = failed("it did not answer in time", "when the node agent starts an hour later");
    return { accelerator: "tcg", reason, until: now + SILENT_MS };
  } catch (error) {
    return { accelerator: "tcg", reason: failed(messageOf(error), "after the host's next boot"), until: null };
  }
}

async function hostBootId(): Promise<string> {
  return (await readFile("/proc/sys/kernel/random/boot_id", "utf8")).trim();
}

async function readKept(path: string, key: string, now: number): Promise<AcceleratorVerdict | undefined> {
  try {
    const kept = JSON.parse(await readFile(path, "utf8")) as Record<string, unknown>;
    const { accelerator, reason, until } = kept;
    if (kept["key"] !== key || (accelerator !== "kvm" && accelerator !== "tcg")) return undefined;
    // A clock that was set back must not keep it for longer.
    if (until !== null && !(typeof until === "number" && until > now && until <= now + SILENT_MS)) return undefined;
    return { accelerator, reason: String(reason) };
  } catch {
    return undefined; // There is none, or it is damaged: then it is made anew.
  }
}

async function keep(path: string, verdict: object): Promise<void> {
  await mkdir(join(path, ".."), { recursive: true });
  // Not by process id: agents in PID namespaces of their own may share the cache directory.
  const unfinished = `${path}.new-${randomUUID()}`;
  await writeFile(unfinished, `${JSON.stringify(verdict)}\n`);
  await rename(unfinished, path);
}

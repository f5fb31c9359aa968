/**
 * Why a VM ended, from what is left of it: QMP's reason, the process's exit, its log and the guest's console. Pure.
 *
 * Always: what a guest printed is shown shortened and without control characters.
 */
import type { VmExit } from "../driver.ts";

export interface Remains {
  /** This node agent ended the VMM. */
  readonly isEndedByUs: boolean;
  /** Of QEMU's SHUTDOWN event; null when there was none. */
  readonly shutdownReason: string | null;
  /** Of the process; null when it was not our child. */
  readonly exit: { readonly code: number | null; readonly signal: string | null } | null;
  /** The kernel has ended the process for want of memory. */
  readonly isOutOfMemory: boolean;
  /** The VMM's own messages. */
  readonly log: string;
  /** The end of what the guest wrote to its console. */
  readonly console: string;
}

const WORDS_LENGTH_MAX = 300;
/** How QEMU's messages begin; lines without it are hints to them. */
const PROGRAM = "qemu-system-x86_64: ";
/** What QEMU only warns of has ended nothing. */
const WARNING = /^qemu-system-x86_64: (.*: )?warning: /;
const OUT_OF_MEMORY =
  "out of memory on the host side: the VMM needed more than its machine's memory and what running it may take, or the " +
  "host had none left; start it again, with more memory if it recurs";
/** Signals by which people and the kernel's out-of-memory killer end processes; others tell of a defect. */
const KILLING_SIGNALS: readonly string[] = ["SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"];

export function explainExit(remains: Remains): VmExit {
  const { shutdownReason, exit } = remains;
  if (shutdownReason === "guest-shutdown") return { kind: "poweroff", detail: "the guest powered off" };
  if (shutdownReason !== null && shutdownReason.startsWith("guest-")) {
    return { kind: "crashed", detail: lastWords(remains.console) ?? "the guest reset itself" };
  }
  if (remains.isEndedByUs) return { kind: "killed", detail: "ended by the node agent" };
  if (remains.isOutOfMemory) return { kind: "killed", detail: OUT_OF_MEMORY };
  const words = lastWords(remains.log);
  const saying = words === null ? "" : `: ${words}`;
  if (shutdownReason !== null) return { kind: "killed", detail: `the VMM was told to end (${shutdownReason})` };
  if (exit === null) return { kind: "killed", detail: `the VMM's process is gone${saying}` };
  if (exit.signal !== null) {
    const isKilled = KILLING_SIGNALS.includes(exit.signal);
    return { kind: isKilled ? "killed" : "crashed", detail: `the VMM was ended by ${exit.signal}${saying}` };
  }
  if (exit.code === 0) return { kind: "killed", detail: "the VMM was told to end" };
  return { kind: "crashed", detail: words ?? `the VMM ended with code ${exit.code}` };
}

/** How a guest ended that nobody watched, by what its kernel says last. */
export function shutdownReasonIn(consoleText: string): string {
  return /reboot: Power down/.test(consoleText) ? "guest-shutdown" : "guest-reset";
}

/** The line that says most: a kernel's panic or a VMM's error, else the last one. null when there is none. */
export function lastWords(text: string): string | null {
  const lines = text
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is removed
    .replace(/\x1b\[[0-9;?]*[A-Za-z]/g, "")
    .split(/[\r\n]+/)
    .map((line) => line.replace(/[^\x20-\x7e\u00a0-\uffff]/g, " ").trim())
    .filter((line) => line !== "" && !WARNING.test(line));
  const line = lines.findLast((item) => item.includes("Kernel panic") || item.startsWith(PROGRAM)) ?? lines.at(-1);
  if (line === undefined) return null;
  const plain = line.replace(PROGRAM, "").replace(/^-\w+ \{.*\}: /, "");
  return plain.length > WORDS_LENGTH_MAX ? `${plain.slice(0, WORDS_LENGTH_MAX)}…` : plain;
}

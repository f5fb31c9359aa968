/**
 * Explains why a VM ended, from QMP's reason, the process's exit status, its log and the guest's console.
 * Pure.
 *
 * Always: a guest's output is shortened and shown without control characters.
 */
import type { VmExit, VmmExcess } from "../driver.ts";

export interface ExitEvidence {
  /** Whether this node agent killed the VMM. */
  readonly isEndedByUs: boolean;
  /** What it took too much of when the node agent killed it; null: of nothing. */
  readonly excess: VmmExcess | null;
  /** From QEMU's SHUTDOWN event; null if there was none. */
  readonly shutdownReason: string | null;
  /** The process's exit status; null if it was not our child. */
  readonly exit: { readonly code: number | null; readonly signal: string | null } | null;
  /** Whether the kernel killed the process because memory ran out. */
  readonly isOutOfMemory: boolean;
  /** When its fence would have ended it, in epoch milliseconds; null: it has none, or not yet. */
  readonly fencedAt: number | null;
  /** The VMM's messages. */
  readonly log: string;
  /** The end of the guest's console output. */
  readonly console: string;
}

const MESSAGE_LENGTH_MAX = 300;
/** The prefix of QEMU's messages; lines without it are hints that follow a message. */
const PROGRAM = "qemu-system-x86_64: ";
/** A warning of QEMU is never the reason of an exit. */
const WARNING = /^qemu-system-x86_64: (.*: )?warning: /;
const OUT_OF_MEMORY =
  "out of memory on the host side: the VMM needed more than its machine's memory plus its own overhead, or the host had " +
  "none left; start it again, with more memory if it recurs";
const EXCESSES: Readonly<Record<VmmExcess["cause"], string>> = {
  output: "its VMM printed without end, as a guest that misuses its devices makes it do",
};
const FENCED = "its node was cut off from the servers, which may have replaced it";
/** Signals that people and the kernel's out-of-memory killer use; any other indicates a defect. */
const KILLING_SIGNALS: readonly string[] = ["SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"];

export function explainExit(evidence: ExitEvidence): VmExit {
  const { shutdownReason, exit, excess } = evidence;
  if (excess !== null) return { kind: "killed", detail: EXCESSES[excess.cause], excess };
  if (shutdownReason === "guest-shutdown") return { kind: "poweroff", detail: "the guest powered off" };
  if (shutdownReason !== null && shutdownReason.startsWith("guest-")) {
    return { kind: "crashed", detail: lastMessage(evidence.console) ?? "the guest reset itself" };
  }
  const { fencedAt } = evidence;
  // It had ended already when an agent that was stopped continued and ended it.
  const at = fencedAt === null ? {} : { at: fencedAt };
  if (evidence.isEndedByUs) return { kind: "killed", detail: "killed by the node agent", ...at };
  if (evidence.isOutOfMemory) return { kind: "killed", detail: OUT_OF_MEMORY };
  const mayBeFenced = shutdownReason === null && (exit === null || exit.signal === "SIGKILL");
  if (fencedAt !== null && mayBeFenced) return { kind: "fenced", detail: FENCED, at: fencedAt };
  const message = lastMessage(evidence.log);
  const suffix = message === null ? "" : `: ${message}`;
  if (shutdownReason !== null)
    return { kind: "killed", detail: `the VMM was shut down by request (${shutdownReason})` };
  if (exit === null) return { kind: "killed", detail: `the VMM's process has ended${suffix}` };
  if (exit.signal !== null) {
    const isKilled = KILLING_SIGNALS.includes(exit.signal);
    return { kind: isKilled ? "killed" : "crashed", detail: `the VMM was killed by ${exit.signal}${suffix}` };
  }
  if (exit.code === 0) return { kind: "killed", detail: "the VMM was shut down by request" };
  return { kind: "crashed", detail: message ?? `the VMM exited with code ${exit.code}` };
}

/** The reason of a shutdown that no agent observed, from the kernel's last message. */
export function shutdownReasonIn(consoleText: string): string {
  return /reboot: Power down/.test(consoleText) ? "guest-shutdown" : "guest-reset";
}

/**
 * The most informative line: a kernel panic or a VMM's error, otherwise the last line. null if there is none.
 */
export function lastMessage(text: string): string | null {
  const lines = text
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are removed
    .replace(/\x1b\[[0-9;?]*[A-Za-z]/g, "")
    .split(/[\r\n]+/)
    .map((line) => line.replace(/[^\x20-\x7e\u00a0-\uffff]/g, " ").trim())
    .filter((line) => line !== "" && !WARNING.test(line));
  const line = lines.findLast((item) => item.includes("Kernel panic") || item.startsWith(PROGRAM)) ?? lines.at(-1);
  if (line === undefined) return null;
  const plain = line.replace(PROGRAM, "").replace(/^-\w+ \{.*\}: /, "");
  const cut = plain.length > MESSAGE_LENGTH_MAX ? `${plain.slice(0, MESSAGE_LENGTH_MAX)}…` : plain;
  // A cut, here or of the console, may have left half of a character, which no server accepts.
  return cut.toWellFormed();
}

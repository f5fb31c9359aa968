/**
 * Runs a hook in the guest of a machine, within its time.
 *
 * Always:
 * - A hook has ended, or was killed with its descendants, when its outcome is there.
 * - What it prints is read to its end within that time; the last bytes are shown as one line.
 *
 * An agent that dies in the middle loses the channel, with which the guest ends the command.
 */
import { deadlineSignal, orAborted } from "@flotilla/base/abort";
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { GuestHook } from "@flotilla/contract/link/link";
import type { Guest } from "../guest/guest.ts";
import { oneLine } from "../guest/one-line.ts";
import { runCommand } from "../guest/run-command.ts";
import type { HookOutcome } from "./consequence.ts";

/** How much of its output is shown. */
const LAST_BYTES = 500;

export interface HookRun {
  readonly guest: Pick<Guest, "exec">;
  readonly clock: Clock;
  /** It is killed after this long, even if its own time is longer. */
  readonly limitMs: number;
  readonly signal: AbortSignal;
}

export interface EndedHook {
  readonly outcome: HookOutcome;
  /** How it ended, for people: to be read after the hook's name. */
  readonly text: string;
}

/** Never rejects. */
export async function runHook(hook: GuestHook, { guest, clock, limitMs, signal }: HookRun): Promise<EndedHook> {
  const ms = Math.min(hook.timeoutMs, limitMs);
  const deadline = deadlineSignal(clock, ms, signal);
  let last = Buffer.alloc(0);
  const onOutput = (_output: string, chunk: Buffer): void => {
    last = Buffer.concat([last, chunk.subarray(-LAST_BYTES)]).subarray(-LAST_BYTES);
  };
  const withOutput = (text: string): string => {
    const said = oneLine(last);
    return said === "" ? text : `${text}: ${said}`;
  };
  try {
    const command = runCommand(guest, { argv: hook.command, signal: deadline.signal, onOutput });
    const exitCode = await orAborted(command, deadline.signal);
    deadline.signal.throwIfAborted();
    const text = `ended with exit code ${exitCode}`;
    return exitCode === 0 ? { outcome: "done", text } : { outcome: "failed", text: withOutput(text) };
  } catch (error) {
    if (signal.aborted) return { outcome: "cut", text: "was ended with what it was a part of" };
    if (deadline.signal.aborted) return { outcome: "late", text: withOutput(`did not end within ${ms / 1000} s`) };
    return { outcome: "notRun", text: withOutput(`was not run to its end (${messageOf(error)})`) };
  } finally {
    deadline.dispose();
  }
}

/**
 * Checks once whether a machine does its work: an answer of its web server, a port, or a command in the
 * guest.
 *
 * The kinds of checks are in http.ts, tcp.ts and exec.ts. Each resolves when the machine is healthy, and
 * rejects with an Error for the app's owner.
 *
 * Always:
 * - A check has ended when its result is there: its connection is closed, its command killed.
 * - What the guest answers is read within limits and shown as one line of printable text.
 */
import { deadlineSignal, orAborted } from "@flotilla/base/abort";
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { MachineHealthCheck } from "@flotilla/contract/link/link";
import type { CheckRun, CheckTarget } from "./check-run.ts";
import type { CheckResult } from "./counter.ts";
import { checkExec } from "./exec.ts";
import { checkHttp } from "./http.ts";
import { checkTcp } from "./tcp.ts";

const KINDS = { http: checkHttp, tcp: checkTcp, exec: checkExec } as const satisfies Record<
  MachineHealthCheck["type"],
  (run: CheckRun) => Promise<void>
>;

/** Never rejects. After the signal is aborted the result means nothing. */
export async function runCheck(
  check: MachineHealthCheck,
  { guest, network }: CheckTarget,
  clock: Clock,
  signal: AbortSignal,
): Promise<CheckResult> {
  const deadline = deadlineSignal(clock, check.timeoutMs, signal);
  let missing = "the check did not begin";
  const awaits = (what: string): void => {
    missing = what;
  };
  try {
    const run: CheckRun = { check, guest, network, signal: deadline.signal, awaits };
    await orAborted(KINDS[check.type](run), deadline.signal);
    return { isHealthy: true };
  } catch (error) {
    const isOver = deadline.signal.aborted;
    return { isHealthy: false, reason: isOver ? `${missing} within ${check.timeoutMs / 1000} s` : messageOf(error) };
  } finally {
    deadline.dispose();
  }
}

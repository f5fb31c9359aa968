/**
 * Records what machines send, in the journal of runs: often while they send much, so that a ceiling is
 * noticed soon, and seldom while they send little, because each record is written, reported and kept as a row
 * for the invoice: at most one a minute for a machine that sends less than 18 MB/s.
 *
 * Owns nothing. The network counts (network/network.ts); the end of a run has the exact number
 * (actions/end.ts). A crash of the agent loses no count, and one of the host what was not recorded yet.
 */
import type { Clock } from "@flotilla/base/clock";
import type { RunJournal } from "./run-journal.ts";

const PERIOD_MS = 5_000;
const MIB = 2 ** 20;
const GIB = 2 ** 30;

/** A record is due after this time when a run has sent this much since the last one. */
const DUE: readonly { readonly bytes: number; readonly afterMs: number }[] = [
  { bytes: GIB, afterMs: 0 },
  { bytes: 64 * MIB, afterMs: 60_000 },
  { bytes: 1, afterMs: 600_000 },
];

/** Whether a run that has sent `bytes` since its last record, `ms` ago, is recorded now. */
export const isDue = (bytes: number, ms: number): boolean =>
  DUE.some((rule) => bytes >= rule.bytes && ms >= rule.afterMs);

/** A boot that runs, and what it has sent. */
export interface Sender {
  readonly bootId: string;
  readonly sentBytes: number;
}

/**
 * Records what the senders have sent, until the signal is aborted, and then once more: the next agent may
 * find that a VM has ended. Never rejects.
 */
export async function meterEgress(
  parts: { readonly runs: RunJournal; readonly clock: Clock; readonly senders: () => readonly Sender[] },
  signal: AbortSignal,
): Promise<void> {
  const { runs, clock, senders } = parts;
  /** When each boot was recorded last, by the monotonic clock. */
  let recordedAt = new Map<string, number>();
  while (!signal.aborted) {
    const now = clock.monotonic();
    const next = new Map<string, number>();
    for (const { bootId, sentBytes } of senders()) {
      const before = recordedAt.get(bootId) ?? now;
      const isRecorded = isDue(sentBytes - runs.sentBytes(bootId), now - before);
      if (isRecorded) runs.count(bootId, sentBytes);
      next.set(bootId, isRecorded ? now : before);
    }
    recordedAt = next;
    await clock.sleep(PERIOD_MS, signal);
  }
  for (const { bootId, sentBytes } of senders()) runs.count(bootId, sentBytes);
}

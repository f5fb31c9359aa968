/**
 * Plays the few files that failed in a whole run once more, one at a time, when nothing else runs.
 *
 * Always:
 * - A file that fails again has failed. One that passes is named as unstable, with its failure: the test or
 *   the product has a bug, which the change under test may not have made.
 * - When more than UNSTABLE_MAX files failed, none is played again.
 */
import { type Outcome, print, runStage } from "./run-stage.ts";

const UNSTABLE_MAX = 3;

export interface Played {
  readonly outcomes: readonly Outcome[];
  /** The failures of files that passed the second time. */
  readonly unstable: readonly string[];
}

export async function playAgain(root: string, outcomes: readonly Outcome[]): Promise<Played> {
  const failed = outcomes.flatMap((outcome) => (outcome.failedFile === undefined ? [] : [outcome.failedFile]));
  if (failed.length === 0 || failed.length > UNSTABLE_MAX) return { outcomes, unstable: [] };
  const played: Outcome[] = [];
  const unstable: string[] = [];
  for (const outcome of outcomes) {
    if (outcome.failedFile === undefined) {
      played.push(outcome);
      continue;
    }
    const { file, layer } = outcome.failedFile;
    print(`again, alone: ${file}`);
    const second = await runStage(root, new Map([[layer, [file]]]), { isNight: false });
    played.push(...second);
    if (second.every(({ failed: count }) => count === 0)) unstable.push(...outcome.failures);
  }
  return { outcomes: played, unstable };
}

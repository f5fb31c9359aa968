/**
 * Whether a guest's agent answers: facts → what they mean. Pure.
 *
 * The agent of a machine that runs is asked when nothing has come from it for ASK_AFTER_MS. Any message shows
 * that it lives, so a guest in use is not asked. RULES holds every decision.
 *
 * Silence alone decides, and processor time only prolongs it: a kernel that has panicked may spin, and a
 * guest whose agent is stopped uses a little, so neither much nor little of it shows that a guest works.
 * - Times are those in which its VM could have answered (`countedMs`): one that has to wait for the host's
 *   processors has more time, and what passes while this process does not run counts little.
 * - A guest that computes without a pause has more time too: one with too little memory looks like that.
 * - What waits for a silent agent ends soon, and the machine only after minutes, because a restart loses what
 *   is in its memory.
 *
 * Always: a machine that is being moved, suspended, stopped or given to another VMM, or whose VMM has paused
 * it, is not judged, and has all its time again afterwards.
 */
import type { ProcessorTime } from "../driver/driver.ts";

/** How often a guest is looked at. */
export const LOOK_MS = 5_000;
/** From the last message of a guest until it is asked. */
const ASK_AFTER_MS = 20_000;
/** From the question until the guest counts as silent, and until it counts as hung. */
const PATIENCE = { idle: { silentMs: 30_000, hungMs: 180_000 }, busy: { silentMs: 120_000, hungMs: 720_000 } } as const;
/** A guest computes when its VM has had a processor for this share of the time. */
const BUSY_SHARE = 0.5;
/** How much of a look counts at least, however long the VM waited for a processor. */
const COUNTED_SHARE_MIN = 0.25;

/** Why a guest is not expected to answer. */
export const EXCUSES = {
  notRunning: "it does not run, or is to end",
  action: "its node is doing something with it",
  leaving: "it is being moved",
  replacing: "another VMM gets its guest",
  paused: "its VMM has paused it",
  hostStop: "its host goes down",
} as const;
export type Excuse = keyof typeof EXCUSES;

export interface GuestFacts {
  readonly excuse: Excuse | null;
  /** Since the last message of the guest, or since it is looked at. */
  readonly quietMs: number;
  /** Counted since it was asked and nothing has come; null: it was not asked. */
  readonly askedMs: number | null;
  /** How long its VM has had a processor since then. */
  readonly ranMs: number;
}

/** `silent`: its agent does not answer. `hung`: nor will it, as far as can be known. */
export const VERDICTS = ["notJudged", "answers", "ask", "wait", "silent", "hung"] as const;
export type Verdict = (typeof VERDICTS)[number];

export interface Judgement {
  readonly verdict: Verdict;
  readonly why: string;
}

interface Rule {
  readonly why: string;
  readonly test: (facts: GuestFacts) => boolean;
  readonly then: Verdict;
}

const isAsked = ({ askedMs }: GuestFacts): boolean => askedMs !== null;
const asked = ({ askedMs }: GuestFacts, atLeastMs: number): boolean => askedMs !== null && askedMs >= atLeastMs;
const isBusy = ({ askedMs, ranMs }: GuestFacts): boolean => askedMs !== null && ranMs >= askedMs * BUSY_SHARE;
const patience = (facts: GuestFacts): (typeof PATIENCE)[keyof typeof PATIENCE] =>
  isBusy(facts) ? PATIENCE.busy : PATIENCE.idle;

/**
 * First match wins.
 *
 *     excuse  asked            its VM    → verdict
 *     any                                → notJudged
 *     none    no, quiet < 20 s           → answers
 *     none    no                         → ask
 *     none    < 30 s ago                 → wait
 *     none    < 120 s ago      computes  → wait
 *     none    < 180 s ago                → silent
 *     none    < 720 s ago      computes  → silent
 *     none    longer ago                 → hung
 */
const RULES: readonly Rule[] = [
  {
    why: "something came from it a short time ago",
    test: (facts) => !isAsked(facts) && facts.quietMs < ASK_AFTER_MS,
    then: "answers",
  },
  { why: "nothing has come from it for some time", test: (facts) => !isAsked(facts), then: "ask" },
  { why: "its answer may be on its way", test: (facts) => !asked(facts, PATIENCE.idle.silentMs), then: "wait" },
  {
    why: "it computes and has not answered yet",
    test: (facts) => !asked(facts, patience(facts).silentMs),
    then: "wait",
  },
  { why: "its agent does not answer", test: (facts) => !asked(facts, patience(facts).hungMs), then: "silent" },
  { why: "its agent has not answered for minutes", test: () => true, then: "hung" },
];

export function judge(facts: GuestFacts): Judgement {
  if (facts.excuse !== null) return { verdict: "notJudged", why: EXCUSES[facts.excuse] };
  const rule = RULES.find(({ test }) => test(facts));
  // The last rule matches everything.
  return { verdict: rule?.then ?? "hung", why: rule?.why ?? "" };
}

/** How much of a look counts. `since`: what the VM has had of processors in it; null: unknown. */
export const countedMs = (since: Pick<ProcessorTime, "waitedMs"> | null): number =>
  Math.max(LOOK_MS * COUNTED_SHARE_MIN, LOOK_MS - (since?.waitedMs ?? 0));

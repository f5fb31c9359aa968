/**
 * Whether a machine that runs gets a VMM of the installed program: facts → why it does not.
 */
import type { ReplacementMode, ReplacedVmm } from "../machines/replacing.ts";

export interface ReplaceFacts {
  readonly how: ReplacementMode;
  /** Its VMM runs another program than the installed one. */
  readonly isOutdated: boolean;
  /** Another program was installed since the agent started. */
  readonly needsAgentRestart: boolean;
  /** A move sends what it has, or may. */
  readonly isMoving: boolean;
  /** Its guest can go to another VMM while it runs. */
  readonly hasSuccessor: boolean;
}

export type NotReplaced = Extract<ReplacedVmm, { outcome: "current" | "refused" }>;

const refused = (reason: string): NotReplaced => ({ outcome: "refused", reason });

/** First match wins; null: it is replaced. Pure. */
export function refusalOf(facts: ReplaceFacts): NotReplaced | null {
  if (!facts.isOutdated) return { outcome: "current" };
  if (facts.needsAgentRestart)
    return refused("another program was installed since the node's agent started: restart that first");
  if (facts.isMoving) return refused("the machine moves");
  if (facts.how === "live" && !facts.hasSuccessor) return refused("this node does not replace VMMs");
  return null;
}

/**
 * What has changed and has no events, for the followers that ask: operations and apps of their tenant, nodes
 * for operators, and that calls were recorded.
 *
 * Always: a follower gets what differs from the look before, so the first look gives nothing, and the next
 * one also finds what a failed look would have found. Pure.
 */
import type { FollowedChange } from "@flotilla/contract/events";

/** Whose changes, and of what. */
export interface Watched {
  readonly tenantId: string;
  readonly hasNodes: boolean;
  readonly hasAudit: boolean;
}

/** The state of a thing: it has changed when its mark is another. */
export interface Mark {
  readonly kind: FollowedChange["kind"];
  readonly id: string;
  readonly mark: string;
}

/** What has changed since the look before. */
export class ChangeWatch {
  #known: ReadonlyMap<string, Mark> | null = null;

  look(marks: readonly Mark[]): readonly FollowedChange[] {
    const before = this.#known;
    const after = new Map(marks.map((each) => [`${each.kind} ${each.id}`, each]));
    this.#known = after;
    if (before === null) return [];
    const changed = marks.filter(({ kind, id, mark }) => before.get(`${kind} ${id}`)?.mark !== mark);
    // An operation that ended long ago is looked at no more; a node or an app that is gone was removed.
    const removed = [...before].filter(([key, { kind }]) => (kind === "node" || kind === "app") && !after.has(key));
    return [...changed, ...removed.map(([, each]) => each)].map(({ kind, id }) => ({
      kind,
      id: kind === "audit" ? null : id,
    }));
  }
}

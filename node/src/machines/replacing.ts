/**
 * A request to run a machine in a VMM of the installed program (docs/decisions/0065-new-vmms.md). Nothing of
 * it is on the disk: if the agent ends, the request is repeated.
 *
 * Always: one request of a machine is under way; others join it.
 */

/** `live`: its guest goes to another VMM while it runs. `restart`: it is shut down and boots. */
export type HowReplaced = "live" | "restart";

export type ReplacedVmm =
  /** `pauseMs`: of its guest; null: it booted. */
  | { readonly outcome: "replaced"; readonly pauseMs: number | null }
  /** It runs the installed program already. */
  | { readonly outcome: "current" }
  /** It does not run, or ended in the middle for this reason. */
  | { readonly outcome: "ended"; readonly reason?: string }
  /** It runs on as before. */
  | { readonly outcome: "refused"; readonly reason: string };

export class Replacing {
  readonly how: HowReplaced;
  readonly done: Promise<ReplacedVmm>;
  readonly #end: (outcome: ReplacedVmm) => void;
  #switched: PromiseWithResolvers<void> | null = null;

  constructor(how: HowReplaced) {
    this.how = how;
    const { promise, resolve } = Promise.withResolvers<ReplacedVmm>();
    this.done = promise;
    this.#end = resolve;
  }

  /** Resolves when the guest may be given commands again; null: it may. */
  get switched(): Promise<void> | null {
    return this.#switched?.promise ?? null;
  }

  /** Commands wait from now on, until `open`. */
  close(): void {
    this.#switched ??= Promise.withResolvers();
  }

  open(): void {
    this.#switched?.resolve();
    this.#switched = null;
  }

  end(outcome: ReplacedVmm): void {
    this.open();
    this.#end(outcome);
  }
}

/**
 * What the plan and the actions know of a request to run a machine in another VMM. The room replacing/ makes
 * and executes it.
 */

/** `live`: its guest goes to another VMM while it runs. `restart`: it is shut down and boots. */
export type ReplacementMode = "live" | "restart";

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
  readonly how: ReplacementMode;
  readonly done: Promise<ReplacedVmm>;
  /** Executes a `live` one, as an action of the machine. Ends this, unless the agent ends. */
  readonly act: (signal: AbortSignal) => Promise<void>;
  readonly #end: (outcome: ReplacedVmm) => void;
  #switched: PromiseWithResolvers<void> | null = null;

  constructor(how: ReplacementMode, act: Replacing["act"]) {
    this.how = how;
    this.act = act;
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

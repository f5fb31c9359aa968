/**
 * What is open by a share link, so that it ends when the link does: a WebSocket must not outlive the right to it.
 *
 * Always: a change of a link ends what was opened by an earlier one, on this server at once and on others within
 * milliseconds (channel `shares`); after notifications may have been missed the database is asked.
 */
import type { Context } from "../../context.ts";
import { shareHashes } from "./store.ts";

interface Opened {
  readonly hash: string;
  readonly ending: AbortController;
}

export class ShareWatch {
  readonly #context: Context;
  readonly #opened = new Map<string, Set<Opened>>();
  readonly #unlisten: () => void;

  constructor(context: Context) {
    this.#context = context;
    this.#unlisten = context.db.listen("shares", {
      onPayload: (payload) => this.#onPayload(payload),
      onGap: () => void this.#lookAgain(),
    });
  }

  /** Something is open by the link with this hash until `close` is called; the signal ends it. */
  open(machineId: string, hash: Buffer): { readonly signal: AbortSignal; close(): void } {
    const opened: Opened = { hash: hash.toString("hex"), ending: new AbortController() };
    const all = this.#opened.get(machineId) ?? new Set();
    this.#opened.set(machineId, all.add(opened));
    return {
      signal: opened.ending.signal,
      close: () => {
        all.delete(opened);
        if (all.size === 0 && this.#opened.get(machineId) === all) this.#opened.delete(machineId);
      },
    };
  }

  /** The machine's link is another one now; null: it has none. Resolves when all servers were told. */
  changed(machineId: string, hash: Buffer | null): Promise<void> {
    return this.#context.db.notify("shares", `${machineId}:${hash?.toString("hex") ?? ""}`);
  }

  close(): void {
    this.#unlisten();
  }

  #onPayload(payload: string): void {
    const [machineId = "", hash = ""] = payload.split(":");
    this.#end(machineId, hash);
  }

  async #lookAgain(): Promise<void> {
    const ids = [...this.#opened.keys()];
    if (ids.length === 0) return;
    try {
      const hashes = await shareHashes(this.#context.db, ids);
      for (const id of ids) this.#end(id, hashes.get(id)?.toString("hex") ?? "");
    } catch (error) {
      // There is another gap, and another look, when the database is back.
      this.#context.log.warn({ error }, "share links could not be looked at again");
    }
  }

  #end(machineId: string, hash: string): void {
    for (const opened of this.#opened.get(machineId) ?? []) if (opened.hash !== hash) opened.ending.abort();
  }
}

/**
 * What each node is to keep prepared for shared pools, for the answers to heartbeats.
 *
 * Always: at most FRESH_MS old, so each server reads pools and nodes once in that time, however many nodes report. Without a
 * shared pool it reads no node. Two servers may differ for that long, and then a node gets its share with the next answer.
 */
import type { ReserveShare } from "@flotilla/contract/link";
import type { Context } from "../context.ts";
import { forAll } from "../db/holder.ts";
import { listKeepingNodes, listSharedPools } from "./shared-store.ts";
import { localImagesOf, sharesOf } from "./shares.ts";

const FRESH_MS = 2_000;

type Shares = ReturnType<typeof sharesOf>;

export class NodeShares {
  readonly #context: Pick<Context, "db" | "clock">;
  #shares: Shares = new Map();
  #readAt = Number.NEGATIVE_INFINITY;
  #reading: Promise<Shares> | null = null;

  constructor(context: Pick<Context, "db" | "clock">) {
    this.#context = context;
  }

  async of(nodeId: string): Promise<readonly ReserveShare[]> {
    const isFresh = this.#context.clock.monotonic() - this.#readAt <= FRESH_MS;
    const shares = isFresh ? this.#shares : await this.#read();
    return shares.get(nodeId) ?? [];
  }

  async #read(): Promise<Shares> {
    this.#reading ??= forAll(async () => {
      const { db, clock } = this.#context;
      const pools = await listSharedPools(db);
      this.#shares = pools.length === 0 ? new Map() : sharesOf(pools, await listKeepingNodes(db, localImagesOf(pools)));
      this.#readAt = clock.monotonic();
      return this.#shares;
    }).finally(() => {
      this.#reading = null;
    });
    return await this.#reading;
  }
}

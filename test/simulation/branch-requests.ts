/**
 * What users request of branches in a simulated cluster.
 *
 * Its randomness is its own, so that a seed without branches is the same seed.
 */
import type { EndpointName } from "@flotilla/contract/endpoints";
import { Random } from "./random.ts";
import type { Reply } from "./server.ts";

/** In how many seeds there are branches. */
const WITH_BRANCHES = 0.3;
const BRANCHABLE = 0.9;
const COUNT_MAX = 3;

interface Call {
  readonly params: { readonly id: string };
  readonly body: unknown;
}

type Send = (name: EndpointName, call: Call, onReply: (reply: Reply) => void) => void;

export interface Branched {
  readonly source: string;
  readonly clones: readonly string[];
}

export class BranchRequests {
  readonly #random: Random;
  readonly #send: Send;
  readonly #onBranched: (branched: Branched) => void;
  /** Machines that may be branched. */
  readonly #sources = new Set<string>();
  /** Branches without an answer. */
  open = 0;
  #prefixes = 0;

  constructor(random: Random, send: Send, onBranched: (branched: Branched) => void) {
    this.#random = random;
    this.#send = send;
    this.#onBranched = onBranched;
  }

  /** null: this seed has no branches. */
  static ofSeed(seed: number, send: Send, onBranched: (branched: Branched) => void): BranchRequests | null {
    const random = new Random(seed ^ 0x6272616e);
    return random.happens(WITH_BRANCHES) ? new BranchRequests(random, send, onBranched) : null;
  }

  /** What the request to create a machine has besides; null: the machine cannot be branched. */
  drawSource(): { readonly env: Readonly<Record<string, string>> } | null {
    const random = this.#random;
    if (!random.happens(BRANCHABLE)) return null;
    const env: Record<string, string> = {};
    if (random.happens(0.2)) env["FAKE_POINT_MS"] = String(random.below(3_000));
    if (random.happens(0.1)) env["FAKE_POINT_FAIL"] = random.pick(["begin", "copy", "take", "finish"]);
    if (random.happens(0.05)) env["FAKE_FREEZE_FAIL"] = "1";
    if (random.happens(0.1)) env["FAKE_CLONE_FAIL"] = "1";
    return { env };
  }

  /** A machine was created with what `drawSource` has drawn. */
  add(id: string): void {
    this.#sources.add(id);
  }

  /** Branches a machine: mostly one that can be, of those that run. */
  branch(id: string, running: readonly string[]): void {
    const random = this.#random;
    const fit = running.filter((machine) => this.#sources.has(machine));
    const isFit = random.happens(0.85);
    if (isFit && fit.length === 0) return;
    const source = isFit ? random.pick(fit) : id;
    this.#prefixes += 1;
    const namePrefix = random.happens(0.9) ? `batch-${this.#prefixes}` : "batch";
    const body = { count: 1 + random.below(COUNT_MAX), namePrefix };
    this.open += 1;
    this.#send("createBranches", { params: { id: source }, body }, (reply) => {
      this.open -= 1;
      if (reply.kind !== "answer") return;
      const clones = (reply.body as { readonly clones: readonly { readonly id: string }[] }).clones.map(
        (each) => each.id,
      );
      for (const clone of clones) this.#sources.add(clone);
      this.#onBranched({ source, clones });
    });
  }
}

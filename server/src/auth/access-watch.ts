/**
 * Ends open connections (terminals, streams, transfers, bridges, upgrades) when the right that opened them
 * ends: the key is revoked or expires, the tenant is suspended, the machine is deleted, the share link is
 * replaced or ended, or the app that was open to everyone is not.
 *
 * Always:
 * - A notification of a change causes a check in the database at once, on every server. A connection without
 *   a right gets the reason, and is destroyed CUT_MS later if it is still open.
 * - A new connection is checked within LOOK_MS, because its right may have ended before it was watched. All
 *   are checked every FULL_LOOK_MS, and every LOOK_MS while no notifications arrive.
 * - Expiry is checked by the clock every LOOK_MS.
 * - One query runs at a time. While the database does not answer, nothing ends, and nothing can be revoked
 *   either.
 *
 * In memory only: a crash ends every connection.
 */
import type { Timer } from "@flotilla/base/clock";
import { type Link, LinkedList } from "@flotilla/base/linked-list";
import { Refusal } from "@flotilla/contract/errors";
import type { Context } from "../context.ts";
import { forAll } from "../db/holder.ts";
import { findHeld, type HeldParts } from "./access-store.ts";
import { machineNotFound } from "./not-found.ts";

/** The right that keeps a connection open. null: does not depend on this part. */
export interface Right {
  /** Names the connection in the reason for its end: "the command". */
  readonly what: string;
  readonly keyId: string | null;
  /** Epoch milliseconds; of the key or the connect token. */
  readonly expiresAt: number | null;
  readonly tenantId: string | null;
  /** The machine or the app that it reaches. */
  readonly machineId: string | null;
  /** The hash of the share token in hexadecimal digits. */
  readonly shareHash: string | null;
  /** The app that is open to everyone, where no credential gave access. */
  readonly publicAppId: string | null;
  /** The hash of the token of the browser's session; null: the key itself was sent. */
  readonly sessionHash: string | null;
}

/** How an open connection is ended. */
export interface OpenConnection {
  /** Says why and ends it. Called once. */
  end(reason: Refusal): void;
  /** Destroys it if it has not ended by then. */
  cut(): void;
}

interface Entry {
  readonly right: Right;
  readonly connection: OpenConnection;
  /** Epoch milliseconds. */
  readonly openedAt: number;
  isSeen: boolean;
  /** Whether it is to be checked. */
  mustBeChecked: boolean;
  cutting: Timer | null;
  /** Where it is listed, while it is open. */
  readonly places: Link<Entry>[];
}

const LOOK_MS = 400;
const FULL_LOOK_MS = 5_000;
/** Time for the answer with the reason. Together with LOOK_MS it is less than the second that is promised. */
const CUT_MS = 500;

export class AccessWatch {
  readonly #context: Context;
  readonly #entries = new LinkedList<Entry>();
  /** By the ids of keys, tenants, machines and apps. */
  readonly #byId = new Map<string, LinkedList<Entry>>();
  readonly #unlisten: readonly (() => void)[];
  /** To be checked. */
  #unchecked: Entry[] = [];
  #isChecking = false;
  #timer: Timer | null = null;
  #fullLookAt = 0;

  constructor(context: Context) {
    this.#context = context;
    const onGap = (): void => this.#recheck(this.#entries);
    const onPayload = (payload: string): void => this.#recheck(this.#byId.get(payload.split(":", 1)[0] ?? "") ?? []);
    this.#unlisten = (["keys", "tenants", "machines", "shares", "routes"] as const).map((channel) =>
      context.db.listen(channel, { onPayload, onGap }),
    );
  }

  /** Watches a connection until the returned function is called. */
  open(right: Right, connection: OpenConnection): () => void {
    const openedAt = this.#context.clock.now();
    const entry: Entry = {
      right,
      connection,
      openedAt,
      places: [],
      isSeen: false,
      mustBeChecked: false,
      cutting: null,
    };
    entry.places.push(this.#entries.append(entry));
    for (const id of idsOf(right)) {
      const all = this.#byId.get(id) ?? new LinkedList();
      this.#byId.set(id, all);
      entry.places.push(all.append(entry));
    }
    this.#timer ??= this.#context.clock.timer(LOOK_MS, () => this.#tick());
    return () => {
      this.#forget(entry);
      entry.cutting?.cancel();
    };
  }

  close(): void {
    for (const unlisten of this.#unlisten) unlisten();
    this.#timer?.cancel();
    this.#entries.clear();
    this.#byId.clear();
    this.#unchecked = [];
  }

  #tick(): void {
    this.#timer = null;
    const { clock, db } = this.#context;
    for (const entry of this.#entries) {
      if (entry.right.expiresAt !== null && entry.right.expiresAt <= clock.now())
        this.#end(entry, expired(entry.right));
    }
    const isFull = !db.isListening() || clock.monotonic() - this.#fullLookAt >= FULL_LOOK_MS;
    if (isFull) this.#fullLookAt = clock.monotonic();
    this.#recheck([...this.#entries].filter((entry) => isFull || !entry.isSeen));
    if (this.#entries.size > 0) this.#timer ??= clock.timer(LOOK_MS, () => this.#tick());
  }

  #recheck(entries: Iterable<Entry>): void {
    for (const entry of entries) {
      if (!entry.mustBeChecked) this.#unchecked.push(entry);
      entry.mustBeChecked = true;
    }
    if (this.#unchecked.length > 0 && !this.#isChecking) void forAll(() => this.#check());
  }

  /** Checks until nothing is left to check. Never rejects. */
  async #check(): Promise<void> {
    this.#isChecking = true;
    while (this.#unchecked.length > 0) {
      const entries = this.#unchecked.filter(isOpen);
      for (const entry of this.#unchecked) entry.mustBeChecked = false;
      this.#unchecked = [];
      if (entries.length === 0) continue;
      try {
        const held = await findHeld(this.#context.db, partsOf(entries));
        for (const entry of entries) this.#judge(entry, held);
      } catch (error) {
        // They stay unchecked, and the next tick tries again.
        for (const entry of entries) entry.isSeen = false;
        this.#context.log.debug({ error }, "open connections could not be checked");
      }
    }
    this.#isChecking = false;
  }

  #judge(entry: Entry, held: HeldParts): void {
    if (!isOpen(entry)) return;
    const reason = lostBy(entry, held);
    if (reason === undefined) entry.isSeen = true;
    else this.#end(entry, reason);
  }

  #end(entry: Entry, reason: Refusal): void {
    this.#forget(entry);
    entry.cutting = this.#context.clock.timer(CUT_MS, () => entry.connection.cut());
    entry.connection.end(reason);
  }

  #forget(entry: Entry): void {
    for (const place of entry.places) place.remove();
    for (const id of idsOf(entry.right)) if (this.#byId.get(id)?.size === 0) this.#byId.delete(id);
  }
}

const isOpen = ({ places: [place] }: Entry): boolean => place?.isIn === true;
const isId = (id: string | null): id is string => id !== null;
const idsOf = ({ keyId, tenantId, machineId }: Right): readonly string[] => [keyId, tenantId, machineId].filter(isId);

function partsOf(entries: readonly Entry[]) {
  const each = (part: (right: Right) => string | null): readonly string[] => [
    ...new Set(entries.map(({ right }) => part(right)).filter(isId)),
  ];
  return {
    keys: each((right) => right.keyId),
    tenants: each((right) => right.tenantId),
    machines: each((right) => right.machineId),
    shares: each((right) => right.shareHash),
    publicApps: each((right) => right.publicAppId),
    sessions: each((right) => right.sessionHash),
  };
}

/** Why a right does not hold; undefined: it does. */
function lostBy({ right, openedAt }: Entry, held: HeldParts): Refusal | undefined {
  const { what, keyId, tenantId, machineId, shareHash, publicAppId, sessionHash } = right;
  if (keyId !== null && !held.keys.has(keyId))
    return new Refusal("unknown_key", `${what} ended: its API key was revoked`);
  if (sessionHash !== null && !held.sessions.has(sessionHash))
    return new Refusal("unknown_key", `${what} ended: its browser was signed out`);
  if (tenantId !== null && !held.tenants.has(tenantId))
    return new Refusal(
      "payment_required",
      `${what} ended: the tenant was suspended; ask the operator to reactivate it`,
    );
  const goneAt = held.gone.get(`${machineId} ${tenantId}`);
  // A server may remember the machine for a moment after another one has deleted it.
  if (goneAt !== undefined && goneAt <= openedAt) return machineNotFound(machineId ?? "");
  if (goneAt !== undefined)
    return new Refusal("guest_unreachable", `${what} ended with machine ${machineId}, which was deleted while it ran`);
  if (shareHash !== null && !held.shares.has(shareHash))
    return new Refusal("unknown_key", `${what} ended: its share link was taken back`);
  if (publicAppId !== null && !held.publicApps.has(publicAppId))
    return new Refusal("missing_key", `${what} ended: the app now needs a key or its share link`);
  return undefined;
}

const expired = ({ what }: Right): Refusal => new Refusal("expired_key", `${what} ended: its credential has expired`);

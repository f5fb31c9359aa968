/**
 * A request as its handler sees it.
 *
 * Signal and log are made when they are first asked for: most requests wait for nothing and log nothing
 * themselves.
 */
import type { Log } from "@flotilla/base/log";
import type { IdKind } from "@flotilla/contract/ids";
import type { Caller, NodeCaller } from "../auth/caller.ts";
import type { CallerPresence } from "../http/caller-presence.ts";
import { wayOfRequest } from "../http/request.ts";
import type { Way } from "../http/way.ts";
import type { Exchange, HandleParts } from "./exchange.ts";
import type { AnyRequest } from "./handler.ts";
import { recordSent } from "./audit.ts";
import { bytesFromSeed, idFromSeed } from "./once.ts";

export class CheckedRequest implements AnyRequest {
  readonly caller: Caller | NodeCaller | null;
  readonly params: AnyRequest["params"];
  readonly query: unknown;
  readonly body: unknown;
  readonly headers: AnyRequest["headers"];
  readonly #parts: HandleParts;
  readonly #exchange: Exchange;
  readonly #presence: CallerPresence;
  readonly #seed: string | null;
  readonly #bearer: string;
  #secretBytes: CheckedRequest["secretBytes"] | undefined;

  /** `seed`: of its idempotency key; null: it has none. */
  constructor(
    parts: HandleParts,
    exchange: Exchange,
    { params, query, body }: Pick<AnyRequest, "params" | "query" | "body">,
    seed: string | null,
  ) {
    const { message, presence, key, node } = exchange;
    this.caller = key ?? node ?? null;
    this.params = params;
    this.query = query;
    this.body = body;
    this.headers = message.headers;
    this.#parts = parts;
    this.#exchange = exchange;
    this.#presence = presence;
    this.#seed = seed;
    this.#bearer = exchange.bearer ?? "";
  }

  get signal(): AbortSignal {
    return this.#presence.signal;
  }

  get log(): Log {
    return this.#parts.context.log.child({ requestId: this.#exchange.requestId });
  }

  get recordSent(): () => void {
    return () => recordSent(this.#parts, this.#exchange);
  }

  get way(): Way {
    return wayOfRequest(this.#parts, this.#exchange);
  }

  newId(kind: IdKind): string {
    return this.#seed === null ? this.#parts.context.ids.make(kind) : idFromSeed(this.#seed, kind);
  }

  get secretBytes(): (size: number) => Buffer {
    return (this.#secretBytes ??=
      this.#seed === null ? this.#parts.context.randomBytes : bytesFromSeed(this.#seed, this.#bearer));
  }
}

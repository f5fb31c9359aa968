/**
 * Callers over HTTP: the owner and scopes of each key, asked of the server.
 *
 * Always: an answer is used for FRESH_MS, so a key that was revoked is refused within that time; until then
 * the server itself refuses its calls. Keys are looked up by a digest and kept nowhere else.
 */
import { createHash } from "node:crypto";
import type { Clock } from "@flotilla/base/clock";
import { Flotilla, FlotillaError } from "@flotilla/sdk";
import { nodeFetch } from "../node-fetch.ts";
import type { Access } from "./access.ts";

const FRESH_MS = 5_000;
const KEYS_MAX = 1_000;
const TIMEOUT_MS = 10_000;

interface Known {
  readonly access: Promise<Access>;
  readonly at: number;
}

export class Callers {
  readonly #url: string;
  readonly #clock: Clock;
  readonly #known = new Map<string, Known>();

  constructor(url: string, clock: Clock) {
    this.#url = url;
    this.#clock = clock;
  }

  /** null: the key is none, or no longer one. Throws a FlotillaError when the server does not answer. */
  async of(bearer: string): Promise<Access | null> {
    if (!/^[\x21-\x7e]{1,512}$/.test(bearer)) return null;
    const name = createHash("sha256").update(bearer).digest("hex");
    const at = this.#clock.monotonic();
    const known = this.#known.get(name);
    if (known !== undefined && at - known.at < FRESH_MS) return known.access.catch(nullIfRefused);
    const flotilla = new Flotilla({ url: this.#url, apiKey: bearer, fetch: nodeFetch });
    const access = flotilla.getCaller({ timeoutMs: TIMEOUT_MS }).then((caller) => ({ flotilla, caller }));
    if (this.#known.size >= KEYS_MAX) this.#known.clear();
    this.#known.set(name, { access, at });
    access.catch(() => this.#known.delete(name));
    return access.catch(nullIfRefused);
  }
}

function nullIfRefused(error: unknown): null {
  if (error instanceof FlotillaError && error.status === 401) return null;
  throw error;
}

/**
 * Calls of a client that uses both servers, one after the other, and counts how they end.
 *
 * Always:
 * - A call ends with an answer, with a broken connection, or is counted as hung: it is then cut after
 *   HUNG_MS.
 * - An answer with 500, a refusal without a code or a text, and one with `unavailable` that does not say when
 *   to try again are faults.
 */
import type { Answer, Client } from "../../server/test/support/client.ts";
import { onThisHost, pause, until } from "../support/until.ts";

/** No call may take as long, even one whose server was stopped or unplugged meanwhile, and without load. */
const HUNG_MS = 30_000;
const DEADLINE_MS = 60_000;
const AGAIN_MS = 250;

export interface Call {
  readonly method: "GET" | "POST" | "DELETE";
  readonly path: string;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

/** null: the connection was broken, or the call was cut. */
export type Outcome = Answer | null;

export class Calls {
  /** Calls that were not answered with success, by status or `broken`. */
  refused = new Map<string, number>();
  hung = 0;
  readonly faults: string[] = [];
  #turn = 0;
  readonly #clients: () => readonly Client[];

  constructor(clients: () => readonly Client[]) {
    this.#clients = clients;
  }

  /** Forgets what was counted. */
  reset(): void {
    this.refused = new Map();
    this.hung = 0;
  }

  /** Through the next server, or through `server`. */
  async send({ method, path, body, headers }: Call, server?: number): Promise<Outcome> {
    const clients = this.#clients();
    const client = clients[(server ?? this.#turn++) % clients.length];
    const signal = AbortSignal.timeout(onThisHost(HUNG_MS));
    try {
      const options = { signal, ...(body !== undefined && { body }), ...(headers && { headers }) };
      const answer = (await client?.call(method, path, options)) ?? null;
      this.#judge(answer, `${method} ${path}`);
      return answer;
    } catch {
      if (signal.aborted) {
        this.hung += 1;
        this.faults.push(`${method} ${path} hung`);
      }
      this.#count("broken");
      return null;
    }
  }

  /** Repeats a call until it is answered with one of `statuses`. Throws at the deadline. */
  async acknowledged(call: Call, statuses: readonly number[]): Promise<Answer> {
    return await until(
      async () => {
        const answer = await this.send(call);
        if (answer === null) throw new Error("the connection was broken");
        if (!statuses.includes(answer.status)) throw new Error(`${answer.status}: ${answer.text}`);
        return answer;
      },
      { what: `${call.method} ${call.path} to be acknowledged`, deadlineMs: DEADLINE_MS, everyMs: AGAIN_MS },
    );
  }

  #judge(answer: Answer | null, what: string): void {
    if (answer === null || answer.status < 400) return;
    this.#count(String(answer.status));
    if (answer.status === 500) this.faults.push(`${what}: 500 ${answer.text}`);
    const code = answer.headers.get("x-error-code");
    if (code === "unavailable" && answer.headers.get("retry-after") === null)
      this.faults.push(`${what}: 503 without Retry-After: ${answer.text}`);
    if (code === null || answer.text === "")
      this.faults.push(`${what}: ${answer.status} without a reason: ${answer.text}`);
  }

  #count(key: string): void {
    this.refused.set(key, (this.refused.get(key) ?? 0) + 1);
  }
}

/** A client's pause after a refusal. */
export const shortly = (): Promise<void> => pause(AGAIN_MS);

/**
 * Which addresses webhooks may be sent to, and one attempt to deliver.
 *
 * Always:
 * - The host's addresses are checked in the same step that resolves them, and the connection goes to a
 *   checked one (base/src/checked-request.ts). Addresses of the operator's networks are refused unless the
 *   operator listed them.
 * - ATTEMPT_MS bounds an attempt as a whole: resolving, connecting, TLS, headers and body.
 * - Redirects are not followed. At most ANSWER_BYTES_MAX of an answer are read, and none are kept.
 * - Owners learn the status of an answer, or one of a few reasons why there was none. They do not learn what
 *   a name resolves to, or whether it resolves at all: that would show them the operator's network.
 */
import { Agent as HttpAgent, type IncomingMessage } from "node:http";
import { Agent as HttpsAgent } from "node:https";
import { BlockList, isIP, isIPv6 } from "node:net";
import { deadlineSignal } from "@flotilla/base/abort";
import { AddressRefused, type Resolve, sendChecked } from "@flotilla/base/checked-request";
import type { Clock } from "@flotilla/base/clock";
import { isPublicAddress } from "@flotilla/base/public-address";
import { Refusal } from "@flotilla/contract/errors";

const ATTEMPT_MS = 15_000;
const ANSWER_BYTES_MAX = 16 * 1024;
const LOOPBACK = "127.0.0.1";
const NOT_PUBLIC = "its host has no address that is public or that the operator allows";

/** What the operator allows besides https:// to public addresses. */
export class WebhookTargets {
  readonly networks = new BlockList();
  readonly #allowsHttp: boolean;

  /** Addresses and networks, such as `10.0.0.1` and `fd00::/8`, which the settings have checked. */
  constructor({ networks, allowsHttp }: { readonly networks: readonly string[]; readonly allowsHttp: boolean }) {
    this.#allowsHttp = allowsHttp;
    for (const text of networks) {
      const [address = "", prefix] = text.split("/");
      const family = isIPv6(address) ? "ipv6" : "ipv4";
      this.networks.addSubnet(address, Number(prefix ?? (family === "ipv6" ? 128 : 32)), family);
    }
  }

  /** The address in its normal form. Throws a Refusal. A name is not resolved before a delivery. */
  check(text: string): string {
    const url = URL.parse(text);
    if (url === null || !/^https?:$/.test(url.protocol)) throw invalid("it is not an https:// address");
    if (url.username !== "" || url.password !== "") throw invalid("it contains a user name or a password");
    if (url.protocol === "http:" && !this.#allowsHttp)
      throw invalid("it is http://, which the operator does not allow");
    const host = url.hostname.replace(/^\[|\]$/g, "");
    // RFC 6761: these names are always those of the host itself.
    const address = /(^|\.)localhost\.?$/.test(host) ? LOOPBACK : host;
    if (isIP(address) !== 0 && !this.#allows(address)) throw invalid(NOT_PUBLIC);
    url.hash = "";
    return url.href;
  }

  #allows(address: string): boolean {
    return isPublicAddress(address) || this.networks.check(address, isIPv6(address) ? "ipv6" : "ipv4");
  }
}

const invalid = (reason: string): Refusal =>
  new Refusal("invalid_request", `url cannot be used for a webhook: ${reason}; give a public https:// address`, {
    field: "url",
  });

/** The result of an attempt. */
export interface Attempt {
  readonly isDelivered: boolean;
  /** The HTTP status; null: no answer. */
  readonly status: number | null;
  /** Why it failed; null: it did not. */
  readonly error: string | null;
}

export interface SendOptions {
  readonly targets: WebhookTargets;
  readonly resolve: Resolve;
  readonly clock: Clock;
  readonly agents: { readonly http: HttpAgent; readonly https: HttpsAgent };
  readonly signal: AbortSignal;
}

/** At most `max` connections at the same time, reused. The caller destroys them. */
export const openAgents = (max: number): SendOptions["agents"] => ({
  http: new HttpAgent({ keepAlive: true, maxSockets: max }),
  https: new HttpsAgent({ keepAlive: true, maxSockets: max }),
});

/** Sends one request. Rejects only when `signal` is aborted. */
export async function attempt(
  request: { readonly url: string; readonly headers: Readonly<Record<string, string>>; readonly body: string },
  { targets, resolve, clock, agents, signal }: SendOptions,
): Promise<Attempt> {
  const deadline = deadlineSignal(clock, ATTEMPT_MS, signal);
  try {
    // The operator's settings may have changed since the webhook was made.
    const url = new URL(targets.check(request.url));
    const { headers, body } = request;
    const allowedAddresses = targets.networks;
    const sent = { url, method: "POST", headers, body, allowedAddresses, agents } as const;
    const answer = await sendChecked({ ...sent, resolve: orNothing(resolve), signal: deadline.signal });
    const status = answer.statusCode ?? 0;
    await discard(answer);
    if (status >= 200 && status < 300) return { isDelivered: true, status, error: null };
    return { isDelivered: false, status, error: statusText(status) };
  } catch (error) {
    signal.throwIfAborted();
    return { isDelivered: false, status: null, error: failureText(error, deadline.signal) };
  } finally {
    deadline.dispose();
  }
}

/** A name that does not resolve has no address, like one of the operator's network. */
const orNothing =
  (resolve: Resolve): Resolve =>
  (hostname) =>
    resolve(hostname).catch(() => []);

const statusText = (status: number): string =>
  status >= 300 && status < 400 ? `answered ${status}; redirects are not followed` : `answered ${status}`;

function failureText(error: unknown, deadline: AbortSignal): string {
  if (deadline.aborted) return `did not answer within ${ATTEMPT_MS / 1000} s`;
  if (error instanceof Refusal) return error.message;
  const code = String((error as NodeJS.ErrnoException).code ?? "");
  if (error instanceof AddressRefused || code === "ENOTFOUND" || code === "EAI_AGAIN") return NOT_PUBLIC;
  if (code === "ECONNREFUSED") return "refused the connection";
  if (/CERT|TLS|SSL|SELF_SIGNED|UNABLE_TO/.test(code)) return `its TLS certificate is not valid (${code})`;
  return "could not be reached, or broke the connection";
}

/**
 * Reads a short answer to its end, so that its connection can be used again; ends the connection of a longer
 * one.
 */
function discard(answer: IncomingMessage): Promise<void> {
  let bytes = 0;
  return new Promise((resolve) => {
    answer.on("data", (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > ANSWER_BYTES_MAX) answer.destroy();
    });
    // The status has decided; a broken body changes nothing.
    answer.on("error", () => undefined);
    answer.once("close", resolve);
  });
}

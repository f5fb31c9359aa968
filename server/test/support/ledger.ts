/**
 * Records which endpoint gave which answer, and compares that with what the contract documents.
 *
 * An outcome is `<endpoint> <status>` of an answer, and `<endpoint> <status> <code>` of a refusal.
 */
import { request as httpRequest } from "node:http";
import type { Endpoint } from "@flotilla/contract/endpoint";
import { type EndpointName, endpoints } from "@flotilla/contract/endpoints";
import { ERRORS, type ErrorCode } from "@flotilla/contract/errors";
import { commonErrors } from "@flotilla/contract/openapi";
import type { Answer, CallOptions, Client } from "./client.ts";

/**
 * A bug of ours cannot be provoked, or it would be fixed. A slow body takes a clock that is fast
 * (exhaustion.test.ts).
 */
const NEVER: readonly ErrorCode[] = ["internal", "body_too_slow"];

export const endpointOf = (name: EndpointName): Endpoint => endpoints[name];

export function documentedCodes(name: EndpointName): readonly ErrorCode[] {
  const endpoint = endpointOf(name);
  const codes = new Set([...commonErrors(endpoint), ...(endpoint.errors ?? [])]);
  return [...codes].filter((code) => !NEVER.includes(code));
}

const outcome = (name: EndpointName, code: ErrorCode): string => `${name} ${ERRORS[code].status} ${code}`;

function documentedOutcomes(name: EndpointName): readonly string[] {
  const answers = Object.keys(endpointOf(name).answers).map((status) => `${name} ${status}`);
  return [...answers, ...documentedCodes(name).map((code) => outcome(name, code))];
}

export interface Asked extends CallOptions {
  /** With all parameters filled in, and the query. */
  readonly path: string;
  /** Without the headers of a WebSocket handshake, where one is expected. */
  readonly isPlain?: true;
}

export class Ledger {
  readonly #seen = new Set<string>();

  /**
   * Calls an endpoint as a client would, with a WebSocket handshake where one is expected, and records the
   * answer.
   */
  async call(client: Client, name: EndpointName, { path, isPlain, ...options }: Asked): Promise<Answer> {
    const { method, isUpgrade } = endpointOf(name);
    const isHandshake = isUpgrade === true && isPlain !== true;
    const answer = isHandshake ? await shakeHands(client, path) : await client.call(method, path, options);
    const code = answer.headers.get("x-error-code");
    this.#seen.add(code === null ? `${name} ${answer.status}` : `${name} ${answer.status} ${code}`);
    return answer;
  }

  missingOf(names: readonly EndpointName[]): readonly string[] {
    return names.flatMap(documentedOutcomes).filter((one) => !this.#seen.has(one));
  }

  /** Answers that are not documented. */
  undocumentedOf(names: readonly EndpointName[]): readonly string[] {
    const documented = new Set(names.flatMap(documentedOutcomes));
    const isOfThem = (one: string): boolean => names.some((name) => one.startsWith(`${name} `));
    return [...this.#seen].filter((one) => isOfThem(one) && !documented.has(one));
  }
}

/** A WebSocket that is closed as soon as it is open. */
function shakeHands({ url, key }: Client, path: string): Promise<Answer> {
  const headers = {
    connection: "upgrade",
    upgrade: "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": Buffer.alloc(16, 1).toString("base64"),
    ...(key === null ? {} : { authorization: `Bearer ${key}` }),
  };
  return new Promise((resolve, reject) => {
    const sent = httpRequest(url + path, { headers });
    const answered = (status: number, from: NodeJS.Dict<string | string[]>, text: string): void =>
      resolve({
        method: "GET",
        status,
        headers: new Headers(Object.entries(from).map(([name, value]) => [name, String(value)])),
        text,
        json: undefined,
      });
    sent.on("upgrade", (response, socket) => {
      socket.destroy();
      answered(response.statusCode ?? 0, response.headers, "");
    });
    sent.on("response", (response) => {
      let text = "";
      response.on("data", (chunk: Buffer) => (text += chunk));
      response.on("end", () => answered(response.statusCode ?? 0, response.headers, text));
    });
    sent.on("error", reject);
    sent.end();
  });
}

/**
 * The protocol over HTTP, at /mcp.
 *
 * Always:
 * - Each request has its own key, as a bearer; one without a valid key gets 401 before its body is read.
 * - A request whose Host is not a name of this server, or whose Origin is not, is refused: a page that a
 *   browser shows cannot reach it by another name.
 * - Requests of the newer era are separate, and end when their caller disconnects. Those of the older one
 *   belong to a session (sessions.ts).
 * - It has at most CONNECTIONS_MAX connections and REQUESTS_MAX requests at the same time; what a key may
 *   hold of them is in holdings.ts. A host that vanished is noticed within minutes.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Clock } from "@flotilla/base/clock";
import { errorOf } from "@flotilla/base/errors";
import { FlotillaError } from "@flotilla/sdk";
import {
  createMcpHandler,
  hostHeaderValidationResponse,
  isLegacyRequest,
  localhostAllowedHostnames,
  type McpServer,
  originValidationResponse,
  PARSE_ERROR,
  readRequestBody,
} from "@modelcontextprotocol/server";
import { Failure } from "../failure.ts";
import { requestOf, sendAnswer } from "./exchange.ts";
import type { Access } from "./access.ts";
import { CeilingReached } from "./ceilings.ts";
import { Holdings } from "./holdings.ts";
import { Sessions } from "./sessions.ts";

export interface ListenOptions {
  readonly host: string;
  readonly port: number;
  /** Further names in callers' addresses. */
  readonly names: readonly string[];
  readonly clock: Clock;
  /** null: not a key. */
  readonly authenticate: (bearer: string) => Promise<Access | null>;
  readonly factory: (access: Access) => McpServer;
  readonly note: (text: string) => void;
}

export interface Listening {
  /** `host:port` */
  readonly address: string;
  readonly close: () => Promise<void>;
}

const PATH = "/mcp";
/** Arguments have up to 16 MiB of input, in JSON. */
const BODY_BYTES_MAX = 24 * 1024 * 1024;
const REQUESTS_MAX = 512;
const CONNECTIONS_MAX = 1_024;
/** After so long without a byte, the other host is asked whether it is there. */
const ALIVE_MS = 60_000;
const HTTP_BAD_REQUEST = 400;
const HTTP_UNAUTHORIZED = 401;
const HTTP_TOO_LARGE = 413;
const HTTP_UNAVAILABLE = 503;
/** The protocol's range for errors of implementations. */
const REFUSED = -32_000;
const RETRY = { "retry-after": "1" };

/** Throws a Failure when the address cannot be listened at. */
export async function listen(options: ListenOptions): Promise<Listening> {
  const answers = new Answers(options);
  const alive = { keepAlive: true, keepAliveInitialDelay: ALIVE_MS };
  const server = createServer(alive, (message, response) => {
    void answers.answer(message, response);
  });
  server.maxConnections = CONNECTIONS_MAX;
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) =>
      reject(new Failure(`cannot listen at ${options.host}:${options.port}: ${error.message}`)),
    );
    server.listen(options.port, options.host, resolve);
  });
  const { address, family, port } = server.address() as AddressInfo;
  return {
    address: family === "IPv6" ? `[${address}]:${port}` : `${address}:${port}`,
    close: async () => {
      server.close();
      await answers.close();
      server.closeAllConnections();
    },
  };
}

class Answers {
  readonly #options: ListenOptions;
  readonly #names: string[];
  readonly #sessions: Sessions;
  readonly #modern: ReturnType<typeof createMcpHandler>;
  readonly #holdings = new Holdings();
  readonly #stopChecks: () => void;
  #requests = 0;

  constructor(options: ListenOptions) {
    this.#options = options;
    const { factory, host, names, note, clock } = options;
    const own = host.includes(":") ? `[${host}]` : host;
    this.#names = [...localhostAllowedHostnames(), own, ...names];
    this.#sessions = new Sessions(clock, factory, BODY_BYTES_MAX);
    this.#stopChecks = this.#holdings.start(clock, (subject) => this.#sessions.endOf(subject));
    this.#modern = createMcpHandler(({ authInfo }) => factory(authInfo?.extra?.["access"] as Access), {
      legacy: "reject",
      maxRequestBodySize: BODY_BYTES_MAX,
      onerror: (error) => note(error.message),
    });
  }

  async close(): Promise<void> {
    this.#stopChecks();
    await this.#sessions.close();
    await this.#modern.close();
  }

  async answer(message: IncomingMessage, response: ServerResponse): Promise<void> {
    this.#requests += 1;
    try {
      const request = requestOf(message, response);
      await sendAnswer(response, await this.#answerOf(request, response));
    } catch (error) {
      // A caller that has gone gets no answer, and is not worth a word.
      if (!response.headersSent && !response.destroyed) {
        this.#options.note(errorOf(error).message);
        response.writeHead(500).end();
      } else response.destroy();
    } finally {
      this.#requests -= 1;
    }
  }

  async #answerOf(request: Request, response: ServerResponse): Promise<Response> {
    const ended = new Promise<void>((resolve) => response.once("close", resolve));
    const wrongName =
      hostHeaderValidationResponse(request, this.#names) ?? originValidationResponse(request, this.#names);
    if (wrongName !== undefined) return wrongName;
    if (new URL(request.url).pathname !== PATH) return new Response(`only ${PATH} is served`, { status: 404 });
    if (this.#requests > REQUESTS_MAX) return refusal(HTTP_UNAVAILABLE, "too many requests", RETRY);
    const access = await this.#accessOf(request);
    if (access instanceof Response) return access;
    if (!this.#holdings.addAnswer(access, response))
      return refusal(HTTP_UNAVAILABLE, "too many requests of this key", RETRY);
    const arrived = { request, access, ended };
    if (request.method !== "POST")
      return this.#sessions.answer({ ...arrived, parsedBody: undefined, holdBody: () => () => {} });
    const body = this.#holdings.takeBody(access, bodyBytesOf(request));
    if (body === null) return refusal(HTTP_UNAVAILABLE, "the requests of this key are too large together", RETRY);
    void ended.then(body.hold());
    const parsedBody = await bodyOf(request);
    if (parsedBody instanceof Response) return parsedBody;
    // What a session works at is held until it has an answer, also after its caller has disconnected.
    if (await isLegacyRequest(request, parsedBody))
      return this.#sessions.answer({ ...arrived, parsedBody, holdBody: () => body.hold() });
    const { subject, scopes } = access.caller;
    const authInfo = { token: "", clientId: subject, scopes: [...scopes], extra: { access } };
    return this.#modern.fetch(request, { authInfo, parsedBody });
  }

  async #accessOf(request: Request): Promise<Access | Response> {
    const [, bearer] = /^Bearer +(\S+) *$/i.exec(request.headers.get("authorization") ?? "") ?? [];
    try {
      const access = bearer === undefined ? null : await this.#options.authenticate(bearer);
      return (
        access ?? refusal(HTTP_UNAUTHORIZED, "an API key is needed as the bearer", { "www-authenticate": "Bearer" })
      );
    } catch (error) {
      if (error instanceof CeilingReached) return refusal(HTTP_UNAVAILABLE, error.message, RETRY);
      if (!(error instanceof FlotillaError)) throw error;
      return refusal(HTTP_UNAVAILABLE, error.text, RETRY);
    }
  }
}

/** What its body may need; of a length that is not stated, the most. */
function bodyBytesOf(request: Request): number {
  const stated = Number(request.headers.get("content-length") ?? BODY_BYTES_MAX);
  return Number.isFinite(stated) ? Math.min(stated, BODY_BYTES_MAX) : BODY_BYTES_MAX;
}

/** The body's JSON, or why it is not taken. */
async function bodyOf(request: Request): Promise<unknown> {
  const body = await readRequestBody(request, BODY_BYTES_MAX);
  if (body.tooLarge) return refusal(HTTP_TOO_LARGE, `the body has more than ${BODY_BYTES_MAX} bytes`);
  try {
    return JSON.parse(body.text) as unknown;
  } catch {
    return refusal(HTTP_BAD_REQUEST, "the body is not JSON", {}, PARSE_ERROR);
  }
}

const refusal = (
  status: number,
  message: string,
  headers: Readonly<Record<string, string>> = {},
  code = REFUSED,
): Response => Response.json({ jsonrpc: "2.0", id: null, error: { code, message } }, { status, headers });

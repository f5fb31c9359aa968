/**
 * The HTTP server of the gateway: one address for E2B's REST interface and for the ports of sandboxes.
 *
 * Always: every request is answered or its connection broken; an unexpected error is logged and
 * answered with 500. Stopping breaks what is open: commands run on in their machines, and clients connect to
 * them again.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import type { Clock } from "@flotilla/base/clock";
import { ownMessageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import { Bridge } from "./bridge.ts";
import { EnvdCalls } from "./envd.ts";
import { answerJson, type Exchange } from "./exchange.ts";
import { KnownSandboxes } from "./known.ts";
import { OwnImages } from "./own-images.ts";
import { Refused, refusedBy } from "./refused.ts";
import { Remembered } from "./remembered.ts";
import { answerRest } from "./rest.ts";
import { type Route, routeOf } from "./route.ts";
import { Sandboxes } from "./sandboxes.ts";
import { Snapshots } from "./snapshots.ts";
import { Tokens } from "./tokens.ts";

const HEAD_MS_MAX = 60_000;
const CONNECTIONS_MAX = 10_000;

export interface GatewayOptions {
  /** The server's address. */
  readonly url: string;
  readonly listen: { readonly host: string; readonly port: number };
  /** Below which ports of sandboxes have their hosts; null: the address that it listens on. */
  readonly domain: string | null;
  readonly secret: Buffer;
  /** Where images are made, and where a server of this host keeps its admin key. */
  readonly dataDirectory: string;
  readonly clock: Clock;
  readonly log: Log;
}

export interface Gateway {
  /** Where it listens. */
  readonly url: string;
  close(): Promise<void>;
}

/** Resolves when it listens. */
export async function startGateway(options: GatewayOptions): Promise<Gateway> {
  const server = createServer({ requestTimeout: 0, headersTimeout: HEAD_MS_MAX, noDelay: true });
  server.maxConnections = CONNECTIONS_MAX;
  const tokens = new Tokens(options.secret);
  const remembered = await Remembered.open({ dataDirectory: options.dataDirectory, tokens, log: options.log });
  await listen(server, options.listen);
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : options.listen.port;
  const domain = options.domain ?? `localhost:${port}`;
  const bridge = new Bridge(options.url);
  const images = new OwnImages(options);
  const answer = answerer({ ...options, domain, bridge, images, tokens, remembered });
  server.on("request", (request, response) => void answer.request(request, response));
  server.on("upgrade", (request, socket) => void answer.upgrade(request, socket));
  const host = options.listen.host.includes(":") ? `[${options.listen.host}]` : options.listen.host;
  return {
    url: `http://${host}:${port}`,
    close: async () => {
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      bridge.close();
      images.close();
      await closed;
      await remembered.close();
    },
  };
}

interface AnswererParts extends GatewayOptions {
  readonly domain: string;
  readonly bridge: Bridge;
  readonly images: OwnImages;
  readonly tokens: Tokens;
  readonly remembered: Remembered;
}

function answerer(options: AnswererParts) {
  const { url, clock, log, bridge, domain, images, tokens, remembered } = options;
  const known = new KnownSandboxes({ clock, end: (each) => void end(each) });
  const sandboxes = new Sandboxes({ url, tokens, known, remembered, bridge, images, domain, clock, log });
  const envd = new EnvdCalls({ bridge, tokens, known, remembered, sandboxes, clock });
  const snapshots = new Snapshots({ sandboxes, envd, clock });
  const end = async (ended: Parameters<Sandboxes["end"]>[0]): Promise<void> => {
    try {
      await sandboxes.end(ended);
    } catch (error) {
      log.warn({ sandboxId: ended.sandboxId, reason: ownMessageOf(error) }, "a sandbox is left to the server to end");
    }
  };
  const dispatch = async (exchange: Exchange): Promise<void> => {
    const route = routeOfRequest(exchange.request);
    if (route === null) throw new Refused(400, "the request names a sandbox or a port that cannot be one");
    if (route.kind === "api") return await answerRest({ sandboxes, snapshots, envd }, exchange, route.path);
    if (route.kind === "unnamed") return await envd.answerUnnamed(exchange, route.path);
    await envd.answer(exchange, route);
  };
  return {
    async request(request: IncomingMessage, response: ServerResponse): Promise<void> {
      const exchange = { request, response, clock };
      try {
        await dispatch(exchange);
      } catch (error) {
        const refused = refusedBy(error) ?? unexpected(log, error, response);
        answerJson(exchange, refused.status === 499 ? 500 : refused.status, refused.body, refused.headers);
      }
    },
    async upgrade(request: IncomingMessage, socket: Duplex): Promise<void> {
      socket.on("error", () => socket.destroy());
      const route = routeOfRequest(request);
      if (route?.kind !== "sandbox") return void socket.end("HTTP/1.1 400 Bad Request\r\n\r\n");
      try {
        await envd.upgrade(request, socket, route);
      } catch (error) {
        const { status } = refusedBy(error) ?? new Refused(502, ownMessageOf(error));
        socket.end(`HTTP/1.1 ${status} Refused\r\n\r\n`);
      }
    },
  };
}

function routeOfRequest({ headers, url = "/" }: IncomingMessage): Route | null {
  const { "e2b-sandbox-id": sandboxId, "e2b-sandbox-port": port, host } = headers;
  const texts = { sandboxId: textOf(sandboxId), port: textOf(port) };
  return routeOf({ host, ...texts, target: url });
}

const textOf = (value: string | string[] | undefined): string | undefined =>
  typeof value === "string" && value !== "" ? value : undefined;

/** A connection that broke is not logged. */
function unexpected(log: Log, error: unknown, response: ServerResponse): Refused {
  if (!response.destroyed) log.warn({ reason: ownMessageOf(error) }, "a request could not be answered");
  return new Refused(502, "the server does not answer");
}

function listen(server: Server, { host, port }: GatewayOptions["listen"]): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, host, () => {
      server.off("error", reject);
      resolve();
    });
  });
}

/**
 * A simulated server: the shipped families, loops and services, without the listeners of HTTP. Calls reach
 * the handlers as they do behind the pipeline of http/, with JSON that was written and read.
 */
import assert from "node:assert/strict";
import { Refusal } from "@flotilla/contract/errors";
import type { EndpointName } from "@flotilla/contract/endpoints";
import { readNodeMessage } from "../../server/src/json/node-message.ts";
import { KeyCache } from "../../server/src/auth/key-cache.ts";
import type { Caller } from "../../server/src/auth/caller.ts";
import type { ServerSettings } from "../../server/src/config.ts";
import type { Context } from "../../server/src/context.ts";
import { DatabaseUnavailable } from "../../server/src/db/database.ts";
import { type Assembly, assemble } from "../../server/src/assemble.ts";
import type { ChosenInstance } from "../../server/src/ingress/apps/app-routes.ts";
import type { Metrics } from "../../server/src/status/metrics.ts";
import type { AnyRequest } from "../../server/src/api/handler.ts";
import { randomIds } from "../../server/src/ids.ts";
import { Connection, type Databases } from "./database.ts";
import type { Answer, Call, Network } from "./network.ts";
import { Program, type World } from "./world.ts";

export const JOIN_TOKEN = "join-token-of-the-simulation";

const NO_METRICS: Metrics = {
  contentType: "text/plain",
  setDatabaseUp: () => undefined,
  observeRequest: () => undefined,
  add: () => undefined,
  addText: () => undefined,
  text: () => Promise.resolve(""),
  close: () => undefined,
};

export interface ServerOptions {
  readonly world: World;
  readonly databases: Databases;
  readonly network: Network;
  readonly name: string;
  readonly settings: ServerSettings;
  readonly clock: { readonly aheadMs: number; readonly rate: number };
  /** Called for an answer that no caller may get. */
  readonly onFault: (text: string) => void;
}

/** What a caller gets. `broken`: the connection ended before an answer. */
export type Reply =
  | { readonly kind: "answer"; readonly status: number; readonly body: unknown }
  | { readonly kind: "refused"; readonly status: number; readonly code: string; readonly text: string }
  | { readonly kind: "broken" };

export interface ServerCall {
  readonly params?: object;
  readonly query?: object;
  readonly body?: unknown;
  readonly caller: Caller;
  /**
   * The id of what it makes, as the pipeline gives it to each call with the same idempotency key; absent: a
   * new one.
   */
  readonly madeId?: string;
}

export class SimulatedServer {
  readonly program: Program;
  readonly connection: Connection;
  readonly #options: ServerOptions;
  readonly #assembly: Assembly;
  readonly #context: Context;

  constructor(options: ServerOptions) {
    const { world, databases, network, name, settings, clock } = options;
    this.#options = options;
    this.program = new Program(world, "server", name, clock);
    this.connection = new Connection(databases, this.program);
    const randomBytes = (size: number) => world.ids.bytes(size);
    const context: Context = {
      db: this.connection,
      clock: world.clockOf(this.program),
      log: this.program.log(),
      ids: randomIds(randomBytes),
      randomBytes,
    };
    this.#context = context;
    this.#assembly = world.as(this.program, () => {
      const assembly = assemble({
        context,
        settings,
        keys: new KeyCache(context.db),
        metrics: NO_METRICS,
        version: "simulated",
        openapi: {},
        nodeWaitMs: undefined,
        webhookTimes: undefined,
        resolve: undefined,
        isStopping: () => false,
        isDiskFull: () => false,
        idleConnectionsMax: 1,
      });
      assembly.start("http://server.simulated");
      void assembly.ingress.apps.start();
      return assembly;
    });
    network.serve(this.program, (call) => this.#serveNode(call));
    world.after(world.random.between(1, 20), this.program, () => this.connection.setListening(true));
    world.note(`${name} starts`);
  }

  /** A call of a user. Resolves as "broken" when the server dies before it answers. */
  async call(name: EndpointName, { params = {}, query = {}, body, caller, madeId }: ServerCall): Promise<Reply> {
    const { world } = this.#options;
    const request = this.#request({ params, query, body: copied(body), caller }, madeId);
    const handler = this.#assembly.handlers[name];
    assert.ok(handler !== undefined, name);
    const died = new Promise<Reply>((resolve) => this.program.onKill(() => resolve({ kind: "broken" })));
    const working = world.as(this.program, async (): Promise<Reply> => {
      if (this.program.isStopped) await new Promise<void>((resolve) => world.after(0, this.program, resolve));
      try {
        const { status, body: answered, json } = await handler(request);
        return { kind: "answer", status, body: json === undefined ? copied(answered) : JSON.parse(String(json)) };
      } catch (error) {
        return { kind: "refused", ...this.#refusal(name, error) };
      }
    });
    return await Promise.race([working, died]);
  }

  /** As the pipeline answers an error. */
  #refusal(name: string, error: unknown): { status: number; code: string; text: string } {
    if (error instanceof Refusal) return { status: error.status, code: error.code, text: error.message };
    if (error instanceof DatabaseUnavailable) return { status: 503, code: "unavailable", text: error.message };
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    if (this.program.isAlive) this.#options.onFault(`${name} was answered with 500: ${text}`);
    return { status: 500, code: "internal", text };
  }

  /** As a request for the app comes to its ingress. null: it is answered that none can serve it. */
  chooseInstance(appId: string): ChosenInstance | null {
    try {
      return this.#options.world.as(this.program, () => this.#assembly.ingress.apps.choose(appId, new Set()));
    } catch (error) {
      if (error instanceof Refusal) return null;
      throw error;
    }
  }

  async #serveNode({ nodeId, path, token, body }: Call): Promise<Answer> {
    const isRegistration = path.endsWith("/register");
    try {
      const caller = await this.#assembly.nodes.authenticate(token, isRegistration ? "joinToken" : "nodeCredential", {
        certificate: null,
        isLocal: true,
      });
      if (caller === undefined) return { status: 401, text: "unknown", code: "unknown_key" };
      const handler = this.#assembly.handlers[isRegistration ? "registerNode" : "heartbeatNode"];
      assert.ok(handler !== undefined);
      const bytes = Buffer.from(JSON.stringify(body));
      const said = isRegistration ? copied(body) : readNodeMessage("heartbeat", bytes);
      const answer = await handler(this.#request({ params: { id: nodeId }, query: {}, body: said, caller }));
      return { status: answer.status, text: JSON.stringify(answer.body), code: null };
    } catch (error) {
      return this.#refusal(path, error);
    }
  }

  #request(
    parts: Pick<AnyRequest, "caller" | "query" | "body"> & { readonly params: object },
    madeId?: string,
  ): AnyRequest {
    const { ids, randomBytes, log } = this.#context;
    return {
      ...parts,
      params: parts.params as AnyRequest["params"],
      headers: {},
      signal: new AbortController().signal,
      log,
      newId: (kind) => madeId ?? ids.make(kind),
      recordSent: () => undefined,
      secretBytes: randomBytes,
      way: "local",
    };
  }
}

/** As JSON that was sent: without what JSON has not. */
const copied = (value: unknown): unknown => {
  const text = JSON.stringify(value) as string | undefined;
  return text === undefined ? undefined : JSON.parse(text);
};

/**
 * The types between the contract and the code that serves it: a missing handler, a wrong path parameter or an
 * answer that the contract does not declare fails to compile.
 */
import type { Readable } from "node:stream";
import type { Log } from "@flotilla/base/log";
import type { Answer, Body, Endpoint, PathParameters } from "@flotilla/contract/endpoint";
import type { EndpointName, Endpoints } from "@flotilla/contract/endpoints";
import type { IdKind } from "@flotilla/contract/ids";
import type { Static, TSchema } from "@flotilla/contract/schema";
import type { Caller, NodeCaller } from "../auth/caller.ts";
import type { UpgradeHandler } from "../http/upgrade.ts";
import type { Way } from "../http/way.ts";

type CallerOf<E extends Endpoint> = E["access"] extends "public"
  ? null
  : E["access"] extends "joinToken" | "nodeCredential"
    ? NodeCaller
    : Caller;

type QueryOf<E extends Endpoint> = E extends { readonly query: infer Q extends TSchema } ? Static<Q> : unknown;
/** A long text may be its bytes. */
type WithText<T, Name> = { [Field in keyof T]: Field extends Name ? T[Field] | Buffer : T[Field] };
type BodyOf<E extends Endpoint> = E extends { readonly body: infer B extends Body }
  ? B extends { readonly kind: "json"; readonly schema: infer S extends TSchema; readonly isOptional: true }
    ? Static<S> | undefined
    : B extends { readonly kind: "json"; readonly schema: infer S extends TSchema; readonly longText: infer Name }
      ? WithText<Static<S>, Name>
      : B extends { readonly kind: "json"; readonly schema: infer S extends TSchema }
        ? Static<S>
        : Readable
  : undefined;

export interface Request<E extends Endpoint = Endpoint> {
  readonly caller: CallerOf<E>;
  readonly params: { readonly [Name in PathParameters<E["path"]>]: string };
  readonly query: QueryOf<E>;
  readonly body: BodyOf<E>;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  /** Aborted when the caller has disconnected or the server ends requests. */
  readonly signal: AbortSignal;
  readonly log: Log;
  /** Call it before something is sent to a machine: a change of it is recorded then, however it ends. */
  readonly recordSent: () => void;
  /**
   * An id for a resource of the kind that this request makes. A repetition under the same idempotency key
   * gets the same.
   */
  newId(kind: IdKind): string;
  /** Random bytes for a secret. A repetition under the same idempotency key gets the same, call for call. */
  readonly secretBytes: (size: number) => Buffer;
  /** Whether others could read the request on its way. */
  readonly way: Way;
}

type AnswerBody<A extends Answer> = A extends { readonly kind: "json"; readonly schema: infer S extends TSchema }
  ? {
      readonly body: A extends { readonly orStream: string } ? Static<S> | Readable : Static<S>;
      readonly json?: string | Buffer;
      /** Content type of a stream that is not `orStream`. */
      readonly contentType?: string;
    }
  : A extends { readonly kind: "stream" }
    ? { readonly body: Readable | string; readonly contentType?: string }
    : { readonly body?: undefined };

/** One of the answers that the contract declares for the endpoint. */
export type Reply<E extends Endpoint = Endpoint> = {
  [Status in keyof E["answers"]]: {
    readonly status: Status;
    readonly headers?: Readonly<Record<string, string>>;
  } & (Status extends 101 ? { readonly upgrade: UpgradeHandler } : AnswerBody<E["answers"][Status] & Answer>);
}[keyof E["answers"]];

/** A promise, unless the answer is known without waiting. */
export type Handler<E extends Endpoint = Endpoint> = (request: Request<E>) => Promise<Reply<E>> | Reply<E>;

/** The endpoints that pass a request on to a machine as it is: ingress/ serves them. */
type BridgeEndpoint = {
  [Name in EndpointName]: Endpoints[Name] extends { readonly isBridge: true } ? Name : never;
}[EndpointName];

/** A handler for every other endpoint. */
export type Handlers = {
  readonly [Name in Exclude<EndpointName, BridgeEndpoint>]: Handler<Endpoints[Name]>;
};

/** The handlers of some endpoints: what one family's routes.ts returns. */
export type HandlersOf<Name extends EndpointName> = { readonly [N in Name]: Handler<Endpoints[N]> };

/** A request and an answer without their types, for code that serves every endpoint alike. */
export interface AnyRequest {
  readonly caller: Caller | NodeCaller | null;
  readonly params: Readonly<Record<string, string>>;
  readonly query: unknown;
  readonly body: unknown;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly signal: AbortSignal;
  readonly log: Log;
  readonly recordSent: () => void;
  newId(kind: IdKind): string;
  readonly secretBytes: (size: number) => Buffer;
  readonly way: Way;
}

export interface AnyReply {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: unknown;
  /** The body as JSON, if it was serialized before. */
  readonly json?: string | Buffer;
  readonly contentType?: string;
  /** With status 101. */
  readonly upgrade?: UpgradeHandler;
}

export type AnyHandler = (request: AnyRequest) => Promise<AnyReply> | AnyReply;
export type AnyHandlers = Readonly<Partial<Record<EndpointName, AnyHandler>>>;

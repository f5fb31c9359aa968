/**
 * A request of the server while the link answers it.
 */
import type { IncomingMessage, ServerResponse } from "node:http";

export interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly query: URLSearchParams;
  /** Parameters of the route, by name. */
  readonly parameters: Readonly<Record<string, string>>;
  /** Aborted when the caller has gone. */
  readonly signal: AbortSignal;
}

/** The end of a request whose caller has gone: nothing has failed. */
export class CallerGone extends Error {
  constructor() {
    super("the caller has gone");
    this.name = "CallerGone";
  }
}

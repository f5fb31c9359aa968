/**
 * From the contract to the router: for each path its endpoints by method, with compiled checks.
 *
 * Always: every endpoint of the contract is in the table, whether it is served yet or not, except the bridge
 * to machines, which ingress/ serves.
 */
import type { Answer, Endpoint } from "@flotilla/contract/endpoint";
import { type EndpointName, endpointList } from "@flotilla/contract/endpoints";
import type { AnyHandler, AnyHandlers } from "./handler.ts";
import { type Check, compile } from "../json/validate.ts";

export interface Route {
  readonly name: EndpointName;
  readonly endpoint: Endpoint;
  /** The path of the endpoint, or one of its other names. */
  readonly path: string;
  /** undefined: declared, but not served yet. */
  readonly handler: AnyHandler | undefined;
  readonly checkQuery: Check | undefined;
  readonly checkBody: Check | undefined;
  /** By status; only with `checkAnswers`. */
  readonly checkAnswer: ReadonlyMap<number, Check>;
  /** Names of path parameters that are one segment. */
  readonly segmentNames: readonly string[];
  readonly tailName: string | undefined;
}

/** All that is served under one path. */
export interface PathEntry {
  /** In the router's form: `/v1/machines/:id/files/*`. */
  readonly url: string;
  readonly routes: Readonly<Record<string, Route>>;
  /** Value of the `Allow` header. */
  readonly allow: string;
}

export function buildRouteTable(
  handlers: AnyHandlers,
  options: { readonly checkAnswers: boolean },
): readonly PathEntry[] {
  const byUrl = new Map<string, Record<string, Route>>();
  for (const [name, endpoint] of endpointList) {
    if (endpoint.isBridge === true) continue;
    for (const path of [endpoint.path, ...(endpoint.aliases ?? [])]) {
      const url = path.replace(/\{[a-z_]+\.\.\.\}/g, "*").replace(/\{([a-z_]+)\}/g, ":$1");
      let routes = byUrl.get(url);
      if (routes === undefined) {
        routes = {};
        byUrl.set(url, routes);
      }
      const route = makeRoute(name, endpoint, path, handlers[name], options);
      routes[endpoint.method] = route;
      // An answer to HEAD is the one to GET without its body.
      if (endpoint.method === "GET") routes["HEAD"] ??= route;
    }
  }
  return [...byUrl].map(([url, routes]) => ({ url, routes, allow: Object.keys(routes).join(", ") }));
}

/** What serves a method under a path; undefined: nothing does. */
export const routeOf = ({ routes }: PathEntry, method: string | undefined): Route | undefined => routes[method ?? ""];

function makeRoute(
  name: EndpointName,
  endpoint: Endpoint,
  path: string,
  handler: AnyHandler | undefined,
  options: { readonly checkAnswers: boolean },
): Route {
  const names = [...path.matchAll(/\{([a-z_]+)(\.\.\.)?\}/g)];
  const checkAnswer = new Map<number, Check>();
  for (const [status, answer] of Object.entries<Answer>(options.checkAnswers ? endpoint.answers : {})) {
    if (answer.kind === "json") checkAnswer.set(Number(status), compile(answer.schema));
  }
  return {
    name,
    endpoint,
    path,
    handler,
    checkQuery: endpoint.query === undefined ? undefined : compile(endpoint.query),
    checkBody: endpoint.body?.kind === "json" ? compile(endpoint.body.schema) : undefined,
    checkAnswer,
    segmentNames: names.filter((match) => match[2] === undefined).map((match) => match[1] ?? ""),
    tailName: names.find((match) => match[2] !== undefined)?.[1],
  };
}

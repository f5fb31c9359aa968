/**
 * E2B's REST interface: which request is which act.
 *
 * Always: every request is answered; what is not served says so by its name (support.ts lists both).
 */
import type { IncomingMessage } from "node:http";
import { answerJson, bodyOf, type Exchange } from "./exchange.ts";
import { keyOf, sandboxIdOf } from "./ids.ts";
import { listingOf, pageOf } from "./listing.ts";
import type { EnvdCalls } from "./envd.ts";
import { detailView, listedView, sandboxView, stateOf } from "./record.ts";
import { notFound, notImplemented, Refused } from "./refused.ts";
import type { Fields } from "./fields.ts";
import { newSandboxOf, timeoutOf } from "./request-shape.ts";
import { forkOf, type Snapshots } from "./snapshots.ts";
import type { Sandbox, Sandboxes } from "./sandboxes.ts";

const CONNECT_SECONDS = 300;

export interface RestParts {
  readonly sandboxes: Sandboxes;
  readonly snapshots: Snapshots;
  readonly envd: EnvdCalls;
}

interface Call extends Exchange {
  readonly key: string;
  readonly sandboxId: string;
  /** The last variable part of the path. */
  readonly name: string;
  readonly query: URLSearchParams;
}

type Act = (parts: RestParts, call: Call) => Promise<void>;

interface Path {
  readonly method: string;
  readonly pattern: RegExp;
  readonly act: Act;
}

const ID = "([^/]+)";
const on = (method: string, path: string, act: Act): Path => ({
  method,
  pattern: new RegExp(`^${path.replace("{id}", ID).replace("{name}", "(?<name>[^]+)")}$`),
  act,
});

const PATHS: readonly Path[] = [
  on("POST", "/sandboxes", (parts, call) => create(parts, call, "v1")),
  on("POST", "/v2/sandboxes", (parts, call) => create(parts, call, "v2")),
  on("GET", "/v2/sandboxes", list),
  on("GET", "/sandboxes", list),
  on("GET", "/sandboxes/{id}", get),
  on("DELETE", "/sandboxes/{id}", kill),
  on("POST", "/sandboxes/{id}/timeout", setTimeoutOf),
  on("POST", "/sandboxes/{id}/refreshes", refresh),
  on("POST", "/sandboxes/{id}/connect", connect),
  on("POST", "/v2/sandboxes/{id}/connect", connect),
  on("POST", "/sandboxes/{id}/resume", resume),
  on("POST", "/sandboxes/{id}/pause", pause),
  on("POST", "/sandboxes/{id}/fork", fork),
  on("GET", "/sandboxes/{id}/metrics", metrics),
  on("POST", "/sandboxes/{id}/snapshots", createSnapshot),
  on("GET", "/snapshots", listSnapshots),
  on("DELETE", "/templates/{name}", deleteSnapshot),
];

/** Answers a request for the REST interface. Throws a Refused, or the API's own error. */
export async function answerRest(parts: RestParts, exchange: Exchange, target: string): Promise<void> {
  const { pathname, searchParams } = new URL(target, "http://gateway");
  const { method = "GET" } = exchange.request;
  if (method === "GET" && pathname === "/health") return answerJson(exchange, 200, { status: "ok" });
  for (const path of PATHS) {
    const found = path.method === method ? path.pattern.exec(pathname) : null;
    if (found === null) continue;
    const key = keyOfRequest(exchange.request);
    const named = found.groups?.["name"];
    const given = named === undefined ? (found[1] ?? "") : "";
    const sandboxId = given === "" ? "" : sandboxIdOf(given);
    if (sandboxId === null) throw notFound(given);
    return await path.act(parts, { ...exchange, key, sandboxId, name: named ?? "", query: searchParams });
  }
  throw notImplemented(`${method} ${pathname.replace(/\/i[0-9a-f]{32}\b/, "/{id}")}`);
}

function keyOfRequest({ headers }: IncomingMessage): string {
  const bearer = /^Bearer (.+)$/i.exec(headers.authorization ?? "")?.[1];
  const given = headers["x-api-key"] ?? bearer;
  if (typeof given !== "string" || !/^[\x21-\x7e]{1,200}$/.test(given))
    throw new Refused(401, "Invalid API key: send a key of Flotilla as X-API-Key");
  return keyOf(given);
}

function answerSandbox({ sandboxes }: RestParts, call: Call, status: number, sandbox: Sandbox): void {
  const access = sandboxes.access({ key: call.key, sandbox });
  answerJson(call, status, sandboxView(sandbox.machine, sandbox.facts, access));
}

async function create(parts: RestParts, call: Call, version: "v1" | "v2"): Promise<void> {
  const request = newSandboxOf(await bodyOf(call), version);
  const hasGone = (): boolean => call.response.destroyed;
  const snapshot = await parts.snapshots.find(call.key, request.template);
  const sandbox =
    snapshot === null
      ? await parts.sandboxes.create(call.key, request, hasGone)
      : await parts.snapshots.start(call.key, snapshot, request);
  answerSandbox(parts, call, 201, sandbox);
}

async function list({ sandboxes }: RestParts, call: Call): Promise<void> {
  const listing = listingOf(call.query);
  const { page, next } = pageOf(await sandboxes.list(call.key), listing);
  const headers: Record<string, string> = next === null ? {} : { "x-next-token": next };
  answerJson(
    call,
    200,
    page.map(({ machine, facts }) => listedView(machine, facts)),
    headers,
  );
}

async function get({ sandboxes }: RestParts, call: Call): Promise<void> {
  const sandbox = await sandboxes.find(call.key, call.sandboxId);
  const access = sandboxes.access({ key: call.key, sandbox });
  answerJson(call, 200, detailView(sandbox.machine, sandbox.facts, access));
}

async function kill({ sandboxes }: RestParts, call: Call): Promise<void> {
  await sandboxes.kill(call.key, call.sandboxId);
  answerJson(call, 204, null);
}

async function setTimeoutOf({ sandboxes }: RestParts, call: Call): Promise<void> {
  const seconds = timeoutOf((await bodyOf(call))["timeout"], CONNECT_SECONDS);
  const sandbox = await sandboxes.find(call.key, call.sandboxId);
  await sandboxes.setEnd(call.key, sandbox, { endAt: call.clock.now() + seconds * 1000, isLonger: false });
  answerJson(call, 204, null);
}

async function refresh({ sandboxes }: RestParts, call: Call): Promise<void> {
  const seconds = timeoutOf((await bodyOf(call))["duration"], CONNECT_SECONDS);
  const sandbox = await sandboxes.find(call.key, call.sandboxId);
  await sandboxes.setEnd(call.key, sandbox, { endAt: call.clock.now() + seconds * 1000, isLonger: true });
  answerJson(call, 204, null);
}

async function connect(parts: RestParts, call: Call): Promise<void> {
  const body = await bodyOf(call);
  const found = await parts.sandboxes.find(call.key, call.sandboxId);
  const { status, sandbox } = await reach(parts, call, { found, body });
  answerSandbox(parts, call, status, sandbox);
}

async function reach(
  { sandboxes }: RestParts,
  { key, clock }: Call,
  { found, body }: { readonly found: Sandbox; readonly body: Fields },
): Promise<{ readonly status: number; readonly sandbox: Sandbox }> {
  const endAt = clock.now() + timeoutOf(body["timeout"], CONNECT_SECONDS) * 1000;
  if (stateOf(found.machine) === "paused") return { status: 201, sandbox: await sandboxes.resume(key, found, endAt) };
  return { status: 200, sandbox: await sandboxes.setEnd(key, found, { endAt, isLonger: true }) };
}

async function resume(parts: RestParts, call: Call): Promise<void> {
  const body = await bodyOf(call);
  const found = await parts.sandboxes.find(call.key, call.sandboxId);
  if (stateOf(found.machine) === "running") throw new Refused(409, `Sandbox "${call.sandboxId}" is running already`);
  answerSandbox(parts, call, 201, (await reach(parts, call, { found, body })).sandbox);
}

async function pause({ sandboxes }: RestParts, call: Call): Promise<void> {
  const { memory } = await bodyOf(call);
  const sandbox = await sandboxes.find(call.key, call.sandboxId);
  await sandboxes.pause(call.key, sandbox, { keepsMemory: memory !== false });
  answerJson(call, 204, null);
}

async function fork(parts: RestParts, call: Call): Promise<void> {
  const request = forkOf(await bodyOf(call));
  const source = await parts.sandboxes.find(call.key, call.sandboxId);
  const forks = await parts.snapshots.fork(call.key, source, request);
  const views = forks.map((sandbox) => ({
    sandbox: sandboxView(sandbox.machine, sandbox.facts, parts.sandboxes.access({ key: call.key, sandbox })),
  }));
  answerJson(call, 201, views);
}

async function metrics({ sandboxes, envd }: RestParts, call: Call): Promise<void> {
  const sandbox = await sandboxes.find(call.key, call.sandboxId);
  const range = { start: secondsOf(call.query.get("start")), end: secondsOf(call.query.get("end")) };
  answerJson(
    call,
    200,
    stateOf(sandbox.machine) === "paused" ? [] : await envd.metrics(call.key, call.sandboxId, range),
  );
}

/** Epoch seconds; null: none are given. Throws a Refused. */
function secondsOf(text: string | null): number | null {
  const seconds = Number(text);
  if (!Number.isFinite(seconds)) throw new Refused(400, "start and end are not times in seconds");
  return text === null ? null : seconds;
}

async function createSnapshot({ sandboxes, snapshots }: RestParts, call: Call): Promise<void> {
  const { name } = await bodyOf(call);
  const sandbox = await sandboxes.find(call.key, call.sandboxId);
  answerJson(call, 201, await snapshots.create(call.key, sandbox, typeof name === "string" ? name : null));
}

async function listSnapshots({ snapshots }: RestParts, call: Call): Promise<void> {
  answerJson(call, 200, await snapshots.list(call.key, call.query));
}

async function deleteSnapshot({ snapshots }: RestParts, call: Call): Promise<void> {
  await snapshots.delete(call.key, decodeURIComponent(call.name));
  answerJson(call, 204, null);
}

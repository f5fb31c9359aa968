/**
 * What happens to every request below `/v2/`, in this order: request id → host, transfer coding → route →
 * credential → rate → tenant → permission → open requests → lease → work → log.
 *
 * Always:
 * - Callers without a key learn nothing but where tokens are made.
 * - A request that writes has a lease of its repository before anything of it is looked up, so that no
 *   collection deletes what it has found.
 * - Every refusal has the form of the OCI distribution specification.
 */
import { Refusal } from "@flotilla/contract/errors";
import { parseRepository } from "@flotilla/contract/reference";
import { forHolder } from "../db/holder.ts";
import { RateLimiter } from "../fairness/rate.ts";
import type { Outgoing } from "../http/answer.ts";
import { refusal } from "../http/failure.ts";
import { after, checkHead, finish, type OpenRequest, openRequest, refuseSlowly } from "../http/request.ts";
import type { HttpService } from "../http/server.ts";
import { hashedName } from "../auth/keys.ts";
import { BackendUnavailable } from "./backend.ts";
import { appendUploadOf, beginUploadOf, cancelUploadOf, endUploadOf, readBlobOf, readUploadOf } from "./blobs.ts";
import { type KeyCaller, permitted as permittedScopes, refusalOf } from "./caller.ts";
import type { Permitted, RegistryCaller, RegistryParts } from "./exchange.ts";
import {
  identifyKey,
  identifyNode,
  keyOf,
  requireActive,
  requireNodePermitted,
  requirePermitted,
  rightOf,
} from "./identify.ts";
import { deleteManifestOf, listTagsOf, putManifestOf, readManifestOf } from "./manifests.ts";
import { answerOfError, denied, OciError, ofRefusal, unavailable } from "./oci-error.ts";
import { isForRegistry, type RegistryRoute, routeOf, type Scope, scopesOf } from "./paths.ts";
import { hasTokenForm, makeToken, TOKEN_SECONDS } from "./tokens.ts";

const NAME = "registry";
/** A node sends and fetches a layer in four calls, and a package has up to 512. */
const NODE_RATE = { perSecond: 500, burst: 4_000 };

type InRepository = Extract<RegistryRoute, { readonly repository: string }>;

/** Serves requests below `/v2/`; `rest` serves the others. */
export function registryService(parts: RegistryParts, rest: HttpService): HttpService {
  const nodes = new RateLimiter();
  return {
    serve(incoming) {
      if (!isForRegistry(incoming.url)) return rest.serve(incoming);
      const request = openRequest(parts, incoming);
      request.headers.push("docker-distribution-api-version", "registry/2.0");
      const answering = answer(parts, request, nodes).catch((error: unknown) => refused(parts, request, error));
      return after(answering, (outgoing) => finish(parts, request, { outgoing, name: NAME }));
    },
    passesUpgrade: (message) => !isForRegistry(message.url ?? "") && rest.passesUpgrade(message),
  };
}

/** The answer for an error, in the form that clients of registries know. */
function refused(parts: RegistryParts, request: OpenRequest, error: unknown): Outgoing {
  if (request.presence.lost !== undefined) return answerOfError(ofRefusal(request.presence.lost));
  if (error instanceof OciError) return answerOfError(error);
  if (error instanceof Refusal && error.status !== 401) return answerOfError(ofRefusal(error));
  if (error instanceof BackendUnavailable) {
    if (!request.presence.hasGone) parts.context.log.warn({ error }, "the registry's storage failed");
    return answerOfError(unavailable("the registry's storage does not answer; try again in a moment"));
  }
  if (error instanceof Refusal) {
    const headers = { "www-authenticate": challengeOf(parts, request, null) };
    const text = error.message === "" ? "no API key was sent; log in with any user name and the key" : error.message;
    return answerOfError(new OciError(401, "UNAUTHORIZED", text, headers));
  }
  const { status, headers } = refusal(parts.context.log, request, error);
  const kept = headers["retry-after"];
  const text =
    status === 500 ? `the server failed; its log names the reason under request id ${request.requestId}` : "";
  return answerOfError(
    new OciError(
      status,
      status === 503 ? "UNAVAILABLE" : "UNKNOWN",
      text || "the server cannot answer now; try again in a moment",
      kept === undefined ? {} : { "retry-after": kept },
    ),
  );
}

async function answer(parts: RegistryParts, request: OpenRequest, nodes: RateLimiter): Promise<Outgoing> {
  const { message, url } = request;
  checkHead(message);
  if (request.isFromNodes) return await answerNode(parts, request, nodes);
  const caller = await identified(parts, request);
  const { key } = caller;
  request.key = key;
  const { headers, presence, startedAt: now } = request;
  await parts.admission.takeRequest(key, "api", { headers, now, presence });
  requireActive(key);
  presence.admit(parts.access, rightOf(key));
  const route = routeOf(message.method ?? "", url);
  if (route.kind === "version") return { status: 200, headers: { "content-type": "application/json" }, body: "{}" };
  if (route.kind === "token") return await tokenFor(parts, request, caller, scopesOf(route.query));
  if (route.kind === "catalog")
    throw new OciError(403, "DENIED", "repositories are not listed here; the API lists the packages of a tenant");
  requirePermitted(caller, route, challengeOf(parts, request, route));
  request.close = parts.admission.open(key.tenantId, "api");
  return await forHolder(key.tenantId, () => serve(parts, request, { caller, route }), {
    makes: route.action === "push",
  });
}

/** Without a credential the answer says where to get a token for what was asked. */
async function identified(parts: RegistryParts, request: OpenRequest): Promise<KeyCaller> {
  try {
    return await refuseSlowly(parts, request, () => identifyKey(parts, request));
  } catch (error) {
    if (!(error instanceof Refusal) || error.status !== 401) throw error;
    const route = routeOrNull(request);
    const headers = { "www-authenticate": challengeOf(parts, request, route), "x-error-code": error.code };
    const text =
      error.code === "missing_key" ? "log in with any user name and an API key as the password" : error.message;
    throw new OciError(401, "UNAUTHORIZED", text, headers);
  }
}

function routeOrNull({ message, url }: OpenRequest): InRepository | null {
  try {
    const route = routeOf(message.method ?? "", url);
    return "repository" in route ? route : null;
  } catch {
    return null;
  }
}

/** Where the caller gets a token, and for what. */
function challengeOf(
  { publicUrl }: Pick<RegistryParts, "publicUrl">,
  { message, isFromNodes }: OpenRequest,
  route: InRepository | null,
): string {
  const { host = "" } = message.headers;
  const isName = /^[A-Za-z0-9.:[\]-]{1,255}$/.test(host);
  if (isFromNodes || (publicUrl === null && !isName)) return "Bearer";
  const base = publicUrl ?? `http://${host}`;
  const scope = route === null ? "" : `,scope="repository:${route.repository}:${actionsOf(route)}"`;
  return `Bearer realm="${base}/v2/auth",service="${new URL(base).host}"${scope}`;
}

const actionsOf = ({ action }: InRepository): string => (action === "push" ? "pull,push" : action);

async function tokenFor(
  parts: RegistryParts,
  request: OpenRequest,
  caller: KeyCaller,
  asked: readonly Scope[],
): Promise<Outgoing> {
  const given = keyOf(request.message.headers.authorization) ?? "";
  if (hasTokenForm(given)) throw denied("a token makes no tokens; call with an API key");
  const scopes = permittedScopes(caller.key, asked);
  const { text, id } = makeToken(parts, { keyHash: hashedName(given), scopes });
  const pushed = scopes.filter(({ actions }) => actions.includes("push"));
  for (const { repository } of pushed)
    await parts.registry.lease(leaseOf({ ...caller, holder: `token ${id}` }, repository), request.presence.signal);
  const issued = new Date(parts.context.clock.now()).toISOString();
  const body = { token: text, access_token: text, expires_in: TOKEN_SECONDS, issued_at: issued };
  return { status: 200, headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
}

const leaseOf = ({ holder }: Pick<KeyCaller, "holder">, repository: string) => ({
  ...{ holder, repository, nodeId: null },
  tenantId: parseRepository(repository)?.tenantId ?? null,
});

async function answerNode(parts: RegistryParts, request: OpenRequest, nodes: RateLimiter): Promise<Outgoing> {
  const nodeId = await identifyNode(parts, request);
  const verdict = nodes.take(nodeId, NODE_RATE, request.startedAt);
  if (!verdict.isAllowed)
    throw new OciError(429, "TOOMANYREQUESTS", `node ${nodeId} calls too often`, { "retry-after": "1" });
  const route = routeOf(request.message.method ?? "", request.url);
  if (route.kind === "version") return { status: 200, headers: { "content-type": "application/json" }, body: "{}" };
  if (!("repository" in route)) throw new OciError(404, "UNSUPPORTED", "no such path");
  await requireNodePermitted(parts, nodeId, route);
  return await serve(parts, request, { caller: { nodeId }, route });
}

interface Call {
  readonly caller: RegistryCaller;
  readonly route: InRepository;
}

async function serve(parts: RegistryParts, request: OpenRequest, { caller, route }: Call): Promise<Outgoing> {
  const { repository } = route;
  const { signal } = request.presence;
  // A client that may push looks for a blob before it decides not to send it.
  const isPush = route.action === "push" || (route.kind === "readBlob" && request.message.method === "HEAD");
  if (isPush && "key" in caller && mayPush(caller, repository))
    await parts.registry.lease(leaseOf(caller, repository), signal);
  const tenantId = parseRepository(repository)?.tenantId ?? null;
  return await work(parts, { request, caller, repository, tenantId, signal }, route);
}

const mayPush = (caller: KeyCaller, repository: string): boolean =>
  refusalOf(caller, { repository, action: "push" }) === null;

async function work(parts: RegistryParts, permitted: Permitted, route: InRepository): Promise<Outgoing> {
  switch (route.kind) {
    case "readManifest":
      return await readManifestOf(parts, permitted, route.target);
    case "putManifest":
      return await putManifestOf(parts, permitted, route.target);
    case "deleteManifest":
      return await deleteManifestOf(parts, permitted, route.target);
    case "listTags":
      return await listTagsOf(parts, permitted, route.query);
    case "readBlob":
      return await readBlobOf(parts, permitted, route.digest);
    case "beginUpload":
      return await beginUploadOf(parts, permitted, route.query);
    case "appendUpload":
      return await appendUploadOf(parts, permitted, route.id);
    case "endUpload":
      return await endUploadOf(parts, permitted, route);
    case "readUpload":
      return await readUploadOf(parts, permitted, route.id);
    case "cancelUpload":
      return await cancelUploadOf(parts, permitted, route.id);
  }
}

/**
 * Registers a new node, or records that a known one is back.
 *
 * Always:
 * - An existing node is replaced only with its own credential, with the server's own join token (by its own
 *   host's node), or after its credential was revoked, with a token that was made since
 *   (revocation-store.ts).
 * - A socket on this host is an address only for a node that calls over the socket of this host, and it
 *   always may have one again. Any other node has a key, proves with each registration that it has it, and
 *   gets a certificate.
 * - A registration whose answer was lost is repeated with the same token and key, and uses the token once.
 */
import { createPublicKey, type KeyObject, verify } from "node:crypto";
import { Refusal } from "@flotilla/contract/errors";
import { type FleetFacts, parkedAddress, registrationProof } from "@flotilla/contract/link/fleet";
import { nodeEndpoints, type RegisterNodeRequest } from "@flotilla/contract/nodes";
import { placementEndpoints } from "@flotilla/contract/placement";
import type { Context } from "../context.ts";
import type { NodeCaller } from "../auth/caller.ts";
import { type FleetTrust, keyHashOf } from "../link/trust.ts";
import { checkLinkVersions } from "./link-version.ts";
import { hashOf } from "../tokens/mint.ts";
import { findUsableToken } from "../tokens/store.ts";
import { makeCredential, OWN_TOKEN } from "./credentials.ts";
import { isRevokedSince } from "./revocation-store.ts";
import { admitNode, findNode, type NodeRecord, type Registration, updateRegistration } from "./store.ts";

export interface Registered {
  readonly node: NodeRecord;
  /** null: it called with its credential. */
  readonly credential: string | null;
  /** null: it is a node of the server's host, and needs none. */
  readonly fleet: FleetFacts | null;
}

const INTEGER_MAX = 2_147_483_647;
/** The paths below `/v1/nodes/` that are not nodes, such as `servers`. */
const RESERVED_IDS: ReadonlySet<string> = new Set(
  Object.values({ ...nodeEndpoints, ...placementEndpoints }).flatMap(
    ({ path }) => /^\/v1\/nodes\/(\w+)/.exec(path)?.[1] ?? [],
  ),
);

export async function registerNode(
  { context, trust }: { readonly context: Context; readonly trust: FleetTrust },
  caller: NodeCaller,
  request: RegisterNodeRequest,
): Promise<Registered> {
  let publicKey: KeyObject | null;
  try {
    publicKey = checkRequest(caller, request);
  } catch (fault) {
    // A token that is used up admits no corrected request either.
    throw (await usedUp(context, caller, { id: request.id, now: context.clock.now() })) ?? fault;
  }
  const registration: Registration = {
    id: request.id,
    address: request.address,
    totalCpus: request.totalCpus ?? 0,
    totalMemoryMb: Math.min(request.totalMemoryMb ?? 0, INTEGER_MAX),
    totalDiskGb: Math.min(request.totalDiskGb ?? 0, INTEGER_MAX),
    labels: request.labels ?? {},
    runtime: request.runtime ?? null,
    keyHash: publicKey === null ? null : Buffer.from(keyHashOf(publicKey), "hex"),
    now: context.clock.now(),
  };
  const fleet = publicKey === null ? null : await factsFor(trust, request.id, publicKey);
  const registered =
    caller.nodeId === null
      ? await register(context, caller, registration)
      : await reregister(context, caller, registration);
  await context.db.notify("nodes", request.id);
  return { ...registered, fleet };
}

/** Returns the node's key. Throws a Refusal for a request that no token admits. */
function checkRequest(caller: NodeCaller, request: RegisterNodeRequest): KeyObject | null {
  if (RESERVED_IDS.has(request.id)) {
    const text = `node ${request.id} cannot register: /v1/nodes/${request.id} is not a node; choose another id with FLOTILLA_NODE_ID`;
    throw new Refusal("invalid_body", text);
  }
  const publicKey = provenKey(caller, request);
  checkLinkVersions(request.id, request.link ?? { version: 1, lowest: 1 });
  checkAddress(caller, request);
  return publicKey;
}

/**
 * The key of a node of another host. Throws a Refusal when the request does not prove that the node has it.
 */
function provenKey({ bearerHash }: NodeCaller, { id, publicKey, proof }: RegisterNodeRequest): KeyObject | null {
  if (publicKey === undefined || publicKey === null) return null;
  try {
    const key = createPublicKey(publicKey);
    const isP256 = key.asymmetricKeyDetails?.namedCurve === "prime256v1";
    const text = Buffer.from(registrationProof(id, bearerHash));
    if (isP256 && verify("sha256", text, key, Buffer.from(proof ?? "", "base64"))) return key;
  } catch {
    // The key cannot be read, or the proof is not a signature.
  }
  throw new Refusal(
    "invalid_body",
    "publicKey is not a P-256 key in PEM, or proof is not its signature of this registration",
  );
}

async function factsFor(trust: FleetTrust, nodeId: string, publicKey: KeyObject): Promise<FleetFacts> {
  const facts = await trust.factsForKey(nodeId, publicKey);
  if (facts.listeners.length > 0) return facts;
  const text = `node ${nodeId} cannot join: no server listens for nodes of other hosts; start one with FLOTILLA_NODE_LISTEN`;
  throw new Refusal("unavailable", text);
}

type Outcome = Omit<Registered, "fleet">;

async function register(context: Context, caller: NodeCaller, registration: Registration): Promise<Outcome> {
  const credential = makeCredential(context.randomBytes);
  const prefix = caller.joinTokenPrefix === OWN_TOKEN ? null : (caller.joinTokenPrefix ?? "");
  return await context.db.transaction(async (transaction) => {
    const { joinTokenMadeAt: tokenMadeAt } = caller;
    const admission = { credentialHash: hashOf(credential), joinTokenPrefix: prefix, tokenMadeAt };
    const node = await admitNode(transaction, registration, admission);
    if (node === undefined) throw await notAdmitted(context, caller, registration);
    return { node, credential };
  });
}

/** The refusal of a node that is not known, if its token is used up; null: it may be another reason. */
async function usedUp(
  { db }: Pick<Context, "db">,
  { joinTokenPrefix, bearerHash }: NodeCaller,
  { id, now }: { readonly id: string; readonly now: number },
): Promise<Refusal | null> {
  if (joinTokenPrefix === null || (await isKnownNode(db, id))) return null;
  const token = { prefix: joinTokenPrefix, hash: Buffer.from(bearerHash, "hex"), now };
  if ((await findUsableToken(db, token))?.usesLeft !== 0) return null;
  return new Refusal("unknown_key", `node ${id} cannot register: the join token is used up; create another one`);
}

const isKnownNode = async (db: Context["db"], id: string): Promise<boolean> =>
  ((await findNode(db, id))?.status ?? "revoked") !== "revoked";

async function notAdmitted({ db }: Context, caller: NodeCaller, { id, keyHash, now }: Registration): Promise<Refusal> {
  if (
    !(await isKnownNode(db, id)) &&
    (await isRevokedSince(db, { id, keyHash, tokenMadeAt: caller.joinTokenMadeAt }))
  ) {
    const remedy =
      caller.joinTokenPrefix === OWN_TOKEN
        ? "restart its server to admit it again"
        : "create a new token to admit it again";
    const text = `node ${id} cannot register: its id or its key was revoked after its join token was made; ${remedy}`;
    return new Refusal("conflict", text);
  }
  const refusal = await usedUp({ db }, caller, { id, now });
  if (refusal !== null) return refusal;
  const text = `node ${id} cannot register: the id is in use; revoke that node's credential first, or choose another id with FLOTILLA_NODE_ID`;
  return new Refusal("conflict", text);
}

async function reregister(context: Context, caller: NodeCaller, registration: Registration): Promise<Outcome> {
  if (caller.nodeId !== registration.id) {
    const text = `the credential belongs to node ${caller.nodeId}, not to ${registration.id}; register with a join token`;
    throw new Refusal("conflict", text);
  }
  const node = await updateRegistration(context.db, registration);
  if (node === undefined) throw new Refusal("unknown_key", "unknown API key");
  return { node, credential: null };
}

/** Throws a Refusal for an address at which it could not be checked that the node answers. */
function checkAddress(caller: NodeCaller, { id, address, publicKey }: RegisterNodeRequest): void {
  const isHttps = /^https:\/\/[A-Za-z0-9.[\]:_-]+:\d{1,5}\/?$/.test(address) && URL.canParse(address);
  if (address === parkedAddress(id) || isHttps) {
    if (publicKey !== undefined && publicKey !== null) return;
    throw new Refusal("invalid_body", `address ${address} needs publicKey and proof`);
  }
  if (!/^unix:\/[^\0]+$/.test(address)) {
    const text = `address ${JSON.stringify(address)} is neither unix:/path, https://host:port nor ${parkedAddress(id)}`;
    throw new Refusal("invalid_body", text);
  }
  if (caller.isLocal && (caller.joinTokenPrefix === OWN_TOKEN || caller.nodeId !== null)) return;
  const text = `node ${id} cannot have a socket as its address: only a node on the server's own host can; give it https://host:port or ${parkedAddress(id)}`;
  throw new Refusal("invalid_body", text);
}

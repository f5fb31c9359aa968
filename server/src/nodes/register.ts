/**
 * Registers a new node, or records that a known one is back.
 *
 * Always: an existing node is replaced only with its own credential, with the server's own join token (by its own
 * host's node), or after its credential was revoked. A socket on this host is an address only for a node of this
 * host.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { RegisterNodeRequest } from "@flotilla/contract/nodes";
import type { Context } from "../context.ts";
import type { NodeCaller } from "../auth/caller.ts";
import { checkLinkVersions } from "./link-version.ts";
import { hashOf } from "../tokens/mint.ts";
import { makeCredential, OWN_TOKEN } from "./credentials.ts";
import { admitNode, findNode, type NodeRecord, type Registration, updateRegistration } from "./store.ts";

export interface Registered {
  readonly node: NodeRecord;
  /** null: it called with its credential. */
  readonly credential: string | null;
}

const INTEGER_MAX = 2_147_483_647;

export async function registerNode(
  context: Context,
  caller: NodeCaller,
  request: RegisterNodeRequest,
): Promise<Registered> {
  const registration: Registration = {
    id: request.id,
    address: request.address,
    totalCpus: request.totalCpus ?? 0,
    totalMemoryMb: Math.min(request.totalMemoryMb ?? 0, INTEGER_MAX),
    totalDiskGb: Math.min(request.totalDiskGb ?? 0, INTEGER_MAX),
    labels: request.labels ?? {},
    runtime: request.runtime ?? null,
    now: context.clock.now(),
  };
  checkLinkVersions(request.id, request.link ?? { version: 1, lowest: 1 });
  await checkAddress(context, caller, request);
  const registered =
    caller.nodeId === null
      ? await register(context, caller, registration)
      : await reregister(context, caller, registration);
  await context.db.notify("nodes", request.id);
  return registered;
}

async function register(context: Context, caller: NodeCaller, registration: Registration): Promise<Registered> {
  const credential = makeCredential(context.randomBytes);
  const prefix = caller.joinTokenPrefix;
  const node = await admitNode(context.db, registration, {
    credentialHash: hashOf(credential),
    joinTokenPrefix: prefix === OWN_TOKEN ? null : (prefix ?? ""),
  });
  if (node !== undefined) return { node, credential };
  throw new Refusal(
    "conflict",
    `node ${registration.id} cannot register: the id is in use, or the join token was just used up; revoke that node's credential first, or choose another id`,
  );
}

async function reregister(context: Context, caller: NodeCaller, registration: Registration): Promise<Registered> {
  if (caller.nodeId !== registration.id) {
    const text = `the credential belongs to node ${caller.nodeId}, not to ${registration.id}; register with a join token`;
    throw new Refusal("conflict", text);
  }
  const node = await updateRegistration(context.db, registration);
  if (node === undefined) throw new Refusal("unknown_key", "unknown API key");
  return { node, credential: null };
}

async function checkAddress(context: Context, caller: NodeCaller, { id, address }: RegisterNodeRequest): Promise<void> {
  if (/^https?:\/\/[A-Za-z0-9.[\]:_-]+:\d{1,5}\/?$/.test(address) && URL.canParse(address)) return;
  if (!/^unix:\/[^\0]+$/.test(address)) {
    const text = `address ${JSON.stringify(address)} is neither unix:/path nor http://host:port`;
    throw new Refusal("invalid_body", text);
  }
  if (caller.joinTokenPrefix === OWN_TOKEN) return;
  const known = caller.nodeId === null ? undefined : await findNode(context.db, id);
  if (known?.address.startsWith("unix:") === true) return;
  const text = `node ${id} cannot have a socket as its address: only a node on the server's own host can; give it http://host:port`;
  throw new Refusal("invalid_body", text);
}

/**
 * What a node on another host than the server has of its fleet: its key, its certificate, whom it trusts, and
 * where servers listen for it.
 *
 * Owns `node.key` and `membership.json` in the node's directory (0600). The key is made before the first
 * registration and never leaves the host; the rest is replaced as a whole.
 *
 * Always:
 * - A crash leaves the earlier file or the new one. A registration whose answer was lost is repeated with the
 *   same key, and uses the join token once.
 * - A node that joins accepts only the fleet that its join token names.
 */
import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  sign,
  X509Certificate,
} from "node:crypto";
import { readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type FleetFacts, parseJoinToken, registrationProof } from "@flotilla/contract/link/fleet";
import { readFleetFacts } from "@flotilla/contract/link/generated";

export interface TlsIdentity {
  readonly key: string;
  readonly cert: string;
  readonly ca: string[];
}

/** The file's content. */
interface Stored {
  readonly nodeId: string;
  readonly certificate: string;
  readonly authorities: readonly string[];
  readonly listeners: FleetFacts["listeners"];
  readonly ingresses: FleetFacts["ingresses"];
}

export class Membership {
  readonly nodeId: string;
  readonly #path: string;
  readonly #key: KeyObject;
  readonly #watchers: (() => void)[] = [];
  #stored: Stored | null;

  private constructor(nodeId: string, path: string, key: KeyObject, stored: Stored | null) {
    this.nodeId = nodeId;
    this.#path = path;
    this.#key = key;
    this.#stored = stored;
  }

  /**
   * Reads what the directory has. null: the node is one of the server's host: it has not joined from another
   * one, and its token is not one with which nodes of other hosts join. Throws an Error with what to do.
   */
  static async open(directory: string, nodeId: string, joinToken: string | null): Promise<Membership | null> {
    const path = join(directory, "membership.json");
    const stored = await readStored(path);
    if (stored === null && (joinToken === null || (parseJoinToken(joinToken)?.authority ?? null) === null)) return null;
    if (stored !== null && stored.nodeId !== nodeId)
      throw new Error(
        `${directory} belongs to node ${stored.nodeId} of a fleet, and this node is ${nodeId}: set FLOTILLA_NODE_ID=${stored.nodeId}, or use another FLOTILLA_DATA_DIR`,
      );
    return new Membership(nodeId, path, await openKey(join(directory, "node.key")), stored);
  }

  /** null: it has not joined yet. */
  get identity(): TlsIdentity | null {
    if (this.#stored === null) return null;
    const { certificate, authorities } = this.#stored;
    const key = this.#key.export({ type: "pkcs8", format: "pem" }).toString();
    return { key, cert: certificate, ca: [...authorities] };
  }

  /**
   * The fingerprint of an authority that the node trusts; servers show a certificate of the one that is asked
   * for.
   */
  get authority(): string | null {
    const [first] = this.#stored?.authorities ?? [];
    return first === undefined ? null : fingerprintOf(first);
  }

  get listeners(): FleetFacts["listeners"] {
    return this.#stored?.listeners ?? [];
  }

  get ingresses(): FleetFacts["ingresses"] {
    return this.#stored?.ingresses ?? [];
  }

  /** Calls back after each change. */
  watch(onChange: () => void): void {
    this.#watchers.push(onChange);
  }

  /**
   * What proves to the server that this node has its key. `bearer`: the token or credential of the same call.
   */
  proofFor(bearer: string): { readonly publicKey: string; readonly proof: string } {
    const text = registrationProof(this.nodeId, createHash("sha256").update(bearer).digest("hex"));
    return {
      publicKey: createPublicKey(this.#key).export({ type: "spki", format: "pem" }).toString(),
      proof: sign("sha256", Buffer.from(text), this.#key).toString("base64"),
    };
  }

  /**
   * Keeps what the server has answered. `joinToken`: with which the node has just joined. Throws an Error.
   */
  async accept(facts: FleetFacts, joinToken: string | null): Promise<void> {
    const { authorities, ingresses } = facts;
    // A server answers, so there is one: an answer without any must not leave the node without an address to
    // call.
    const listeners = facts.listeners.length > 0 ? facts.listeners : this.listeners;
    const expected = joinToken === null ? null : (parseJoinToken(joinToken)?.authority ?? null);
    if (expected !== null && !authorities.some((each) => fingerprintOf(each) === expected))
      throw new Error(
        "the server belongs to another fleet than the join token; check FLOTILLA_URL, or create another token",
      );
    const certificate = facts.certificate ?? this.#stored?.certificate;
    if (certificate === undefined) throw new Error("the server has issued no certificate");
    const next: Stored = { nodeId: this.nodeId, certificate, authorities, listeners, ingresses };
    const text = JSON.stringify(next);
    if (text === JSON.stringify(this.#stored)) return;
    await writeFile(`${this.#path}.new`, text, { mode: 0o600, flush: true });
    await rename(`${this.#path}.new`, this.#path);
    this.#stored = next;
    for (const onChange of this.#watchers) onChange();
  }
}

async function readStored(path: string): Promise<Stored | null> {
  const text = await readFile(path, "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return null;
    throw error;
  });
  if (text === null) return null;
  try {
    const { nodeId, ...facts } = JSON.parse(text) as Stored;
    const { certificate, ...known } = readFleetFacts(facts);
    if (typeof nodeId === "string" && certificate !== null) return { nodeId, certificate, ...known };
  } catch {
    // As below.
  }
  throw new Error(`${path} is damaged: remove it, and start the node once with a new join token`);
}

/** The node's key; makes it when there is none. */
async function openKey(path: string): Promise<KeyObject> {
  const text = await readFile(path, "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return null;
    throw error;
  });
  if (text !== null) return createPrivateKey(text);
  const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const pem = privateKey.export({ type: "pkcs8", format: "pem" });
  await writeFile(`${path}.new`, pem, { mode: 0o600, flush: true });
  await rename(`${path}.new`, path);
  return privateKey;
}

/** SHA-256 of a certificate in hex. */
const fingerprintOf = (certificate: string | Buffer): string =>
  createHash("sha256").update(new X509Certificate(certificate).raw).digest("hex");

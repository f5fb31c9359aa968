/**
 * What to do about a failure that keeps a node from joining, or ends its membership. Pure.
 */

/** What is known of the failed call. */
export interface Failed {
  /** Error code of the system; null: it has none. */
  readonly code: string | null;
  /** Status of a refusal; null: there was no answer. */
  readonly status: number | null;
  /** Whether this node has joined: it has a credential. */
  readonly hasJoined: boolean;
}

const ADDRESS = "compare FLOTILLA_URL with the line that `flotilla token create` prints";
const PATH = `${ADDRESS}, and check that firewalls let TCP through to that port`;
const NOT_LISTENING = `no server listens there for nodes: start it with --node-listen, such as 0.0.0.0:8443, and ${ADDRESS}`;
const UNRESOLVED = `this host cannot resolve the server's name: ${ADDRESS}, or use its IP address`;
const OTHER_PORT = `what listens there is not a server's port for nodes: ${ADDRESS}`;
const TOKEN = "start it with a new join token of `flotilla token create` as FLOTILLA_JOIN_TOKEN";

const REMEDIES: Readonly<Record<string, string>> = {
  ECONNREFUSED: NOT_LISTENING,
  ENOTFOUND: UNRESOLVED,
  EAI_AGAIN: UNRESOLVED,
  EHOSTUNREACH: PATH,
  ENETUNREACH: PATH,
  ETIMEDOUT: PATH,
  ECONNRESET: OTHER_PORT,
  EPROTO: OTHER_PORT,
  ERR_SSL_WRONG_VERSION_NUMBER: OTHER_PORT,
  ERR_SSL_PACKET_LENGTH_TOO_LONG: OTHER_PORT,
};

/** null: the failure says it itself, or passes by itself. */
export function remedyFor({ code, status, hasJoined }: Failed): string | null {
  if (hasJoined)
    return status === 401 ? `this node was revoked, or its server restored from before it joined: ${TOKEN}` : null;
  if (status === 401) return `the join token is unknown, was used by another node, or has expired: ${TOKEN}`;
  if (status === 404) return OTHER_PORT;
  return code === null ? null : (REMEDIES[code] ?? null);
}

/** The system's code of an error, or of its causes; null: none has one. */
export function systemCodeOf(error: unknown): string | null {
  if (!(error instanceof Error)) return null;
  const { code } = error as NodeJS.ErrnoException;
  return typeof code === "string" ? code : systemCodeOf(error.cause);
}

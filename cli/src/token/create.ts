/**
 * `flotilla token create`: makes a join token, which is shown only once, and says what to do with it.
 *
 * On a terminal it prints the whole line for the host that joins. Elsewhere standard output has only the
 * token, so that it can be redirected to a file, and nothing secret is among the notes.
 */
import { renderSpan } from "@flotilla/base/span";
import type { Call } from "../call.ts";

export interface CreateTokenOptions {
  readonly description?: string;
  readonly expiresIn?: number;
  readonly uses?: number;
  readonly label?: Readonly<Record<string, string>>;
}

const OTHER_HOSTS = "start the servers with --node-listen 0.0.0.0:8443 (FLOTILLA_NODE_LISTEN)";

export async function run(call: Call, _operands: readonly string[], options: CreateTokenOptions): Promise<void> {
  const { description, expiresIn, uses, label } = options;
  const created = await call.flotilla().createJoinToken({
    ...(description === undefined ? {} : { description }),
    ...(expiresIn === undefined ? {} : { expiresInSeconds: expiresIn }),
    ...(uses === undefined ? {} : { maxUses: uses }),
    ...(label === undefined ? {} : { labels: { ...label } }),
  });
  if (call.output.isJson) return call.output.json(created);
  const left = renderSpan(Date.parse(created.expiresAt) - call.world.clock.now());
  const users = created.maxUses === 1 ? "one node" : `${created.maxUses} nodes`;
  const { where, line, notes } = joiningWith(created.nodeAddresses);
  const note = `save it now, it is not shown again; ${users} can join with it within ${left}${where}`;
  if (call.world.streams.output.isTTY === true) {
    call.output.note(note);
    call.output.line(line?.(created.token) ?? created.token);
  } else {
    call.output.line(created.token);
    call.output.note(note);
    if (line !== null) call.output.note(line("…"));
  }
  for (const each of notes) call.output.note(each);
}

interface Joining {
  /** The end of the sentence before the line. */
  readonly where: string;
  /** What is run there; null: no server listens for nodes. */
  readonly line: ((token: string) => string) | null;
  readonly notes: readonly string[];
}

/** `addresses`: where servers listen for nodes. */
function joiningWith(addresses: readonly string[]): Joining {
  const reachable = addresses.filter((address) => !/^(127\.|\[::1\]|localhost:)/.test(address));
  const [address = addresses[0], ...others] = reachable;
  if (address === undefined)
    return { where: "", line: null, notes: [`warning: no server listens for other nodes; ${OTHER_HOSTS}`] };
  const isOfThisHost = reachable.length === 0;
  const own = isOfThisHost ? " --node-id second --data-dir /var/lib/flotilla-second" : "";
  const host = isOfThisHost ? "on this host" : "on the other host";
  const elsewhere = `other addresses of the servers: ${others.join(", ")}`;
  const onlyHere = `no other host can connect to ${address}: for nodes there ${OTHER_HOSTS}`;
  return {
    where: `; ${host}, as root, after \`npm run setup\`:`,
    line: (token) => `FLOTILLA_URL=https://${address} FLOTILLA_JOIN_TOKEN=${token} ./flotilla node${own}`,
    notes: isOfThisHost ? [onlyHere] : others.length > 0 ? [elsewhere] : [],
  };
}

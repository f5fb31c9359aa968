/**
 * The hosts that a connection string names, in libpq's form, which `pg` does not read. Pure.
 *
 *     postgres://user@db1:5432,db2:5432/flotilla?target_session_attrs=read-write
 *     postgres://user@/flotilla?host=/run/db1,/run/db2&port=5432,5433
 *
 * Always: a string with one host is passed to `pg` unchanged, except for `target_session_attrs`.
 */
import type pg from "pg";

export type ConnectionOptions =
  | { readonly connectionString: string }
  | { readonly host: string; readonly user: string; readonly password: string; readonly database: string };

export interface DatabaseHost {
  /** Name in logs and errors: `db1:5432`. */
  readonly name: string;
  /** Connects to this host alone. */
  readonly config: pg.ClientConfig;
}

/** The authority is what is between the credentials and the path. */
const PARTS = /^(?<start>[^/]*\/\/(?:[^/?#]*@)?)(?<authority>[^/?#]*)(?<path>[^?#]*)(?:\?(?<query>[^#]*))?/;
/** libpq's values for a session that can write, and its default. */
const WRITABLE = new Set(["read-write", "primary", "any"]);
const HOSTS_MAX = 8;

/** At least one. Throws an Error for users; it does not contain the string, which may contain a password. */
export function hostsOf(connection: ConnectionOptions): readonly [DatabaseHost, ...DatabaseHost[]] {
  if (!("connectionString" in connection)) return [{ name: connection.host, config: { ...connection } }];
  const { connectionString } = connection;
  const { start = "", authority = "", path = "", query: queryText = "" } = PARTS.exec(connectionString)?.groups ?? {};
  const query = new URLSearchParams(queryText);
  const wanted = query.get("target_session_attrs");
  if (wanted !== null && !WRITABLE.has(wanted))
    throw new Error(`DATABASE_URL has target_session_attrs=${wanted}, but Flotilla writes; use read-write`);
  query.delete("target_session_attrs");
  const [first, ...others] = splitHosts(authority, query).map(({ name, inAuthority, inQuery }) => {
    const own = new URLSearchParams(query);
    for (const [key, value] of Object.entries(inQuery)) own.set(key, value);
    const text = `${start}${inAuthority}${path}${own.size === 0 ? "" : `?${own}`}`;
    return { name, config: { connectionString: text } };
  });
  if (first === undefined || others.length >= HOSTS_MAX)
    throw new Error(`DATABASE_URL names more than ${HOSTS_MAX} hosts`);
  if (others.length === 0 && wanted === null) return [{ name: first.name, config: { connectionString } }];
  return [first, ...others];
}

interface NamedHost {
  readonly name: string;
  readonly inAuthority: string;
  readonly inQuery: Readonly<Record<string, string>>;
}

function splitHosts(authority: string, query: URLSearchParams): readonly NamedHost[] {
  const hosts = query.get("host")?.split(",");
  const ports = query.get("port")?.split(",") ?? [];
  const portOf = (index: number): string | undefined => ports[index] ?? (ports.length === 1 ? ports[0] : undefined);
  if (hosts === undefined) {
    return authority.split(",").map((name, index) => {
      const port = portOf(index);
      return { name, inAuthority: name, inQuery: port === undefined ? {} : { port } };
    });
  }
  if (ports.length > 1 && ports.length !== hosts.length)
    throw new Error(
      `DATABASE_URL names ${hosts.length} hosts and ${ports.length} ports; name one port, or one for each host`,
    );
  return hosts.map((host, index) => {
    const port = portOf(index);
    const name = port === undefined ? host : `${host}:${port}`;
    return { name, inAuthority: authority, inQuery: port === undefined ? { host } : { host, port } };
  });
}

/**
 * Which cluster a backup may save. Decides only; the caller asks the server.
 */

/** The id of a server's cluster; null: no answer. */
export type Answered = string | null;

export interface Named {
  /** `--data-dir`, and no other database: the user says what to save. */
  readonly isDirectoryGiven: boolean;
  /** The environment names a data directory or a database. */
  readonly isPlaceNamed: boolean;
  /** FLOTILLA_URL or `flotilla login` names a server; else it is the default address. */
  readonly isUrlNamed: boolean;
  readonly ask: () => Promise<Answered>;
}

/**
 * `cluster`: the only one that may be saved; undefined: whichever is there. "unknown": the server that is
 * named does not answer, and nothing else says where its control plane is.
 */
export async function clusterToSave(named: Named): Promise<"unknown" | { readonly cluster: string | undefined }> {
  const { isDirectoryGiven, isPlaceNamed, isUrlNamed, ask } = named;
  if (isDirectoryGiven || (isPlaceNamed && !isUrlNamed)) return { cluster: undefined };
  const answered = await ask();
  if (answered === null && isUrlNamed && !isPlaceNamed) return "unknown";
  return { cluster: answered ?? undefined };
}

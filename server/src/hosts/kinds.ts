/**
 * What kinds of things have host names. Pure.
 *
 * Always: an id says of which kind its thing is, and is a host name by itself; the database gives no other
 * thing a name that looks like one.
 */

/** Each kind, and the form of its ids. The table `hosts` knows the same kinds. */
export const HOST_KINDS = {
  machine: /^mach-[0-9a-f]{32}$/,
  app: /^app-[0-9a-f]{32}$/,
} as const satisfies Readonly<Record<string, RegExp>>;

export type HostKind = keyof typeof HOST_KINDS;

/** What a host name leads to. */
export interface HostSubject {
  readonly kind: HostKind;
  readonly id: string;
}

/** undefined: the name is not an id. */
export function subjectOfId(name: string): HostSubject | undefined {
  for (const kind of Object.keys(HOST_KINDS) as HostKind[]) if (HOST_KINDS[kind].test(name)) return { kind, id: name };
  return undefined;
}

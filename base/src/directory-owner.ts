/**
 * The user that a program runs as because a directory is that user's.
 *
 * Always: the user cannot choose another one, nor a group. What is above the directory may be the user's own,
 * who may put a link in its place, or give it a group: a link is not followed, and the group is the one of
 * the user's entry in /etc/passwd.
 */
import { lstatSync, readFileSync } from "node:fs";

export interface User {
  readonly uid: number;
  readonly gid: number;
}

/** null: there is no such directory, or it is root's. */
export function directoryOwner(path: string): User | null {
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found === undefined || !found.isDirectory() || found.uid === 0) return null;
  return userOf(found.uid);
}

/** With the group of its entry; of a user without one, the group of the same number. */
export const userOf = (uid: number): User => knownUser((fields) => fields.uid === uid) ?? { uid, gid: uid };

/** null: the host has no user of this name. */
export const namedUser = (name: string): User | null => knownUser((fields) => fields.name === name);

function knownUser(isOne: (fields: User & { readonly name: string }) => boolean): User | null {
  for (const line of readFileSync("/etc/passwd", "utf8").split("\n")) {
    const [name = "", , uid, gid] = line.split(":");
    const user = { uid: Number(uid), gid: Number(gid) };
    if (uid !== undefined && gid !== undefined && isOne({ name, ...user })) return user;
  }
  return null;
}

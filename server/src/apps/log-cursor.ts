/**
 * Places in the log of an app: a time, and where that is in the logs of some of its instances. Pure.
 *
 *     1796098000000~<the machine's id>:<its node's position>~…
 *
 * Always: an instance that a cursor does not name is at the first line of the cursor's time or later, so a
 * cursor of one line is short, and instances made later are in every cursor.
 */

export interface AppCursor {
  /** Epoch milliseconds. */
  readonly time: number;
  /** By machine. */
  readonly positions: ReadonlyMap<string, string>;
}

/** A cursor must fit into a request's head. */
const NAMED_MAX = 150;
const NAMED = /^([0-9a-f]{32}):(\d{1,15}:\d{1,15})$/;
const PREFIX = "mach-";

/** Text of a cursor. Of more instances than it may name the first are left out: give the latest last. */
export function printCursor(time: number, positions: Iterable<readonly [machineId: string, position: string]>): string {
  const named = [...positions].filter(([machineId]) => machineId.startsWith(PREFIX)).slice(-NAMED_MAX);
  return [time, ...named.map(([machineId, position]) => `${machineId.slice(PREFIX.length)}:${position}`)].join("~");
}

/** null: the text is not a cursor. */
export function parseCursor(text: string): AppCursor | null {
  const [time = "", ...named] = text.split("~");
  if (!/^\d{1,15}$/.test(time) || named.length > NAMED_MAX) return null;
  const positions = new Map<string, string>();
  for (const each of named) {
    const [, id, position] = NAMED.exec(each) ?? [];
    if (id === undefined || position === undefined) return null;
    positions.set(PREFIX + id, position);
  }
  return { time: Number(time), positions };
}

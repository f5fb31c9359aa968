/**
 * What is sent of a machine that moves, each in one stream: the same path below `…/outgoing/` of the source
 * and below `…/incoming/{move}/` of the target. Pure.
 *
 * Always: `readPart` of what `partPath` gives is the same part (moved-parts.test.ts).
 */
import { BLOCK_BYTES } from "./blocks.ts";
import { InvalidMessage } from "./read.ts";

export type MovedPart =
  /**
   * What a stopped machine has: a file from byte `from` on, or the disk's blocks that have changed since a
   * point.
   */
  | { readonly kind: "file"; readonly name: string; readonly from: number; readonly since: string | null }
  /**
   * The disk of a machine that runs, or what has changed since a point. From then on the source knows
   * `point`.
   */
  | { readonly kind: "diskRound"; readonly point: string; readonly since: string | null }
  /** The memory of a machine that runs, in rounds. Then both nodes know `point`. */
  | { readonly kind: "memoryRounds"; readonly point: string }
  /**
   * The rest of a machine that runs, and is paused for it: what has changed in its memory since `point` and
   * on its disk since `diskPoint`, and its devices.
   */
  | {
      readonly kind: "rest";
      readonly point: string;
      readonly diskPoint: string;
      /** Generation of the machine's row since it is held for the move. */
      readonly generation: number;
    };
export type MovedPartKind = MovedPart["kind"];

/** Below the path of the machine's move. `{file}`: the name of a file. */
export const PART_PATHS = {
  file: "files/{file}",
  diskRound: "rounds/disk",
  memoryRounds: "rounds/memory",
  rest: "rest",
} as const satisfies Readonly<Record<MovedPartKind, string>>;

const FILE_NAME = /^(disk|root|memory|memory-base|log-[0-9]{1,15})$/;
const POINT = /^[0-9a-f]{32}$/;

/** With its query. */
export function partPath(part: MovedPart): string {
  switch (part.kind) {
    case "file": {
      const { name, from, since } = part;
      return withQuery(PART_PATHS.file.replace("{file}", name), { from: `${from}`, since });
    }
    case "diskRound":
      return withQuery(PART_PATHS.diskRound, { point: part.point, since: part.since });
    case "memoryRounds":
      return withQuery(PART_PATHS.memoryRounds, { point: part.point });
    case "rest": {
      const { point, diskPoint, generation } = part;
      return withQuery(PART_PATHS.rest, { point, disk: diskPoint, generation: `${generation}` });
    }
  }
}

function withQuery(path: string, query: Readonly<Record<string, string | null>>): string {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== null) given.set(name, value);
  return `${path}?${given}`;
}

/** The part that a request is for. Throws InvalidMessage. */
export function readPart(kind: MovedPartKind, file: string | undefined, query: URLSearchParams): MovedPart {
  switch (kind) {
    case "file": {
      const name = file ?? "";
      if (!FILE_NAME.test(name)) throw new InvalidMessage("file", "disk, root, memory, memory-base or log-<number>");
      const since = query.has("since") ? pointOf(query, "since") : null;
      if (since !== null && name !== "disk") throw new InvalidMessage("since", "a point of a disk");
      return { kind, name, from: fromOf(query), since };
    }
    case "diskRound":
      return { kind, point: pointOf(query, "point"), since: query.has("since") ? pointOf(query, "since") : null };
    case "memoryRounds":
      return { kind, point: pointOf(query, "point") };
    case "rest": {
      const generation = Number(query.get("generation"));
      if (!Number.isSafeInteger(generation) || generation < 1) throw new InvalidMessage("generation", "a whole number");
      return { kind, point: pointOf(query, "point"), diskPoint: pointOf(query, "disk"), generation };
    }
  }
}

function pointOf(query: URLSearchParams, name: string): string {
  const id = query.get(name) ?? "";
  if (!POINT.test(id)) throw new InvalidMessage(name, "32 hex digits");
  return id;
}

function fromOf(query: URLSearchParams): number {
  const from = Number(query.get("from") ?? 0);
  if (!Number.isSafeInteger(from) || from < 0 || from % BLOCK_BYTES !== 0)
    throw new InvalidMessage("from", `a multiple of ${BLOCK_BYTES}`);
  return from;
}

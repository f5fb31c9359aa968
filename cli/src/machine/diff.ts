/**
 * `flotilla machine diff A B [PATH]`: shows the files that differ between two running machines of one
 * lineage, through the files API.
 */
import { posix } from "node:path";
import { type FileEntry, type Flotilla, FlotillaError, type MachineInfo } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { Failure, usage } from "../failure.ts";
import { nodeFetch } from "../node-fetch.ts";
import { renderBytes } from "../table.ts";
import { findMachine } from "./find.ts";
import { compareTrees, type Difference, type FilesOf } from "./tree-difference.ts";

const SIGNS = { added: "+", changed: "~", removed: "-" } as const;

export async function run(call: Call, [first = "", second = "", path = "/"]: readonly string[]): Promise<void> {
  if (!path.startsWith("/")) throw usage(`${path} is not an absolute path`, "such as /etc");
  const flotilla = call.flotilla(nodeFetch);
  const before = await findMachine(flotilla, first);
  const after = await findMachine(flotilla, second);
  await checkComparable(flotilla, before, after);
  const { differences, unread } = await compare(call, [filesOf(flotilla, before), filesOf(flotilla, after)], path);
  if (call.output.isJson) return call.output.json(differences);
  if (differences.length > 0) call.output.table(["", "size", "path"], differences.map(rowOf));
  else call.output.note("no file differs");
  if (unread > 0) call.output.note(`flotilla: ${unread} directories were not read, because their names are not UTF-8`);
}

async function compare(call: Call, [before, after]: readonly [FilesOf, FilesOf], path: string) {
  using _progress = call.output.progress("comparing files");
  return await compareTrees(before, after, posix.normalize(path).replace(/(?<=.)\/$/, ""));
}

/** Throws a Failure when a comparison would say nothing, or would start a machine. */
async function checkComparable(flotilla: Flotilla, before: MachineInfo, after: MachineInfo): Promise<void> {
  for (const { id, name, state } of [before, after])
    if (state !== "started")
      throw new Failure(`machine ${name ?? id} does not run`, `flotilla machine start ${name ?? id}`);
  const { machines } = await flotilla.getLineage(before.id);
  if (!machines.some(({ id }) => id === after.id))
    throw new Failure(
      `${before.name ?? before.id} and ${after.name ?? after.id} are not branches of one machine`,
      "flotilla machine tree shows what may be compared",
    );
}

function filesOf(flotilla: Flotilla, { id }: MachineInfo): FilesOf {
  return {
    async list(path) {
      const answer = await unlessGone(["file"], () => flotilla.readFile(id, { query: { path, list: true } }));
      return answer === null ? null : ((await answer.json()) as readonly FileEntry[]);
    },
    async hash(path) {
      const answer = await unlessGone(["file", "directory"], () => flotilla.readFile(id, { query: { path } }));
      await answer?.body?.cancel();
      return answer?.headers.get("x-content-sha256") ?? null;
    },
  };
}

/** null: nothing is at the path, or by now what the refusal calls one of `kinds`. */
async function unlessGone(kinds: readonly string[], read: () => Promise<Response>): Promise<Response | null> {
  try {
    return await read();
  } catch (error) {
    if (error instanceof FlotillaError && kinds.includes(error.details.resource?.kind ?? "")) return null;
    throw error;
  }
}

function rowOf({ change, path, before, after }: Difference): readonly string[] {
  const isDirectory = (after ?? before)?.kind === "directory";
  return [SIGNS[change], sizeText(change, before?.size, after?.size), isDirectory ? `${path}/` : path];
}

function sizeText(change: Difference["change"], before = 0, after = 0): string {
  if (change === "removed") return renderBytes(before);
  if (change === "added" || before === after) return renderBytes(after);
  return `${renderBytes(before)} → ${renderBytes(after)}`;
}

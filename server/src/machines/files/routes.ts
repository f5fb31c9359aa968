/**
 * The handlers of files, in both forms: the path in the query, and as the rest of the URL.
 */
import type { Readable } from "node:stream";
import { Refusal } from "@flotilla/contract/errors";
import type { Caller } from "../../auth/caller.ts";
import type { HandlersOf } from "../../api/handler.ts";
import type { MachineServices } from "../services.ts";
import { machineNotFound } from "../../auth/not-found.ts";
import { findMachine } from "../store.ts";
import { listingBudget } from "./listing.ts";
import { parseRange } from "./range.ts";
import { listDirectory, readFile } from "./read.ts";
import type { FileTarget } from "./work.ts";
import { removeFile, writeFile } from "./write.ts";

type FileHandlers = HandlersOf<"readFile" | "writeFile" | "readFileAt" | "putFileAt" | "postFileAt" | "deleteFileAt">;

/** The parts that all of these requests have. */
interface FileRequestParts {
  readonly caller: Caller;
  readonly params: { readonly id: string };
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly signal: AbortSignal;
  readonly recordSent: () => void;
}

const PATH_BYTES_MAX = 4095;

export function fileHandlers(services: MachineServices): FileHandlers {
  const lists = listingBudget();
  const read = async (request: FileRequestParts, path: string | undefined, isList: boolean | undefined) => {
    const target = await targetOf(services, request, path);
    if (isList === true) {
      const body = await listDirectory(services, target, lists);
      return { status: 200, body, contentType: "application/json" } as const;
    }
    const { range, "if-range": ifRange } = request.headers;
    return await readFile(services, target, parseRange(textOf(range)), textOf(ifRange));
  };
  const write = async (request: FileRequestParts, path: string | undefined, body: Readable) => {
    refusePart(request);
    const target = await targetOf(services, request, path, { isWrite: true });
    const { sha256 } = await writeFile(services, target, {
      body,
      sha256: textOf(request.headers["x-content-sha256"]),
      bytes: lengthOf(textOf(request.headers["content-length"])),
    });
    return { "x-content-sha256": sha256 };
  };
  return {
    readFile: (request) => read(request, request.query.path, request.query.list),
    // What follows /files/ is relative to the guest's root.
    readFileAt: (request) => read(request, request.params.path || "/", request.query.list),
    writeFile: async (request) => ({ status: 200, headers: await write(request, request.query.path, request.body) }),
    postFileAt: async (request) => ({ status: 200, headers: await write(request, request.params.path, request.body) }),
    putFileAt: async (request) => ({ status: 204, headers: await write(request, request.params.path, request.body) }),
    async deleteFileAt(request) {
      await removeFile(services, await targetOf(services, request, request.params.path));
      return { status: 204 };
    },
  };
}

/** A caller that sends a part of a file would lose the others. */
function refusePart({ headers }: FileRequestParts): void {
  if (headers["content-range"] === undefined) return;
  throw new Refusal("invalid_request", "a file is written whole: send all of it, without content-range");
}

/**
 * Looks for the machine before it refuses the path, so that a path reveals nothing about machines of other
 * tenants.
 */
async function targetOf(
  services: Pick<MachineServices, "context">,
  { caller, params, signal, recordSent }: FileRequestParts,
  path: string | undefined,
  { isWrite = false } = {},
): Promise<FileTarget> {
  const { tenantId, keyId } = caller;
  const { id } = params;
  const fault = faultOf(path, isWrite);
  if (path !== undefined && fault === null) return { tenantId, keyId, id, signal, recordSent, path };
  if ((await findMachine(services.context.db, { tenantId, id })) === undefined) throw machineNotFound(id);
  throw new Refusal("invalid_request", fault ?? "");
}

function faultOf(path: string | undefined, isWrite: boolean): string | null {
  if (path === undefined || path === "") return "the path is missing; give it as ?path=/workspace/file";
  if (isWrite && /(^|\/)\.{0,2}$/.test(path)) return `the path ${path} names a directory; add the name of a file`;
  const bytes = Buffer.byteLength(path);
  return bytes > PATH_BYTES_MAX ? `the path has ${bytes} bytes; at most ${PATH_BYTES_MAX} are possible` : null;
}

const lengthOf = (header: string | undefined): number | null =>
  header !== undefined && /^\d{1,15}$/.test(header) ? Number(header) : null;

const textOf = (header: string | string[] | undefined): string | undefined =>
  Array.isArray(header) ? header.join(", ") : header;

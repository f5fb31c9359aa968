/**
 * A machine's files as they leave for another node: what there is, and their blocks.
 *
 * Only reads. Always: files are read while nothing of the machine runs here and it is to stay stopped; the server starts it again
 * only after the move has ended, here or on the other node. They stay here until the server says that the machine is elsewhere.
 */
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import type { MovedImage, OutgoingMachine } from "@flotilla/contract/link/moves";
import type { Images, UnpackedImage } from "../images/images.ts";
import { readBlocks } from "../images/blocks.ts";
import { diskPathOf, logsPathOf } from "./paths.ts";
import type { Supervisor } from "./supervisor.ts";

const LOG_NAME = /^[0-9]{1,15}$/;

/** What the node has of the machine. `hasContent`: with the hash of the file that its disk is based on. */
export async function describeOutgoing(
  supervisor: Supervisor,
  images: Images,
  { hasContent, signal }: { readonly hasContent: boolean; readonly signal: AbortSignal },
): Promise<OutgoingMachine> {
  const isStopped = supervisor.isAtRest;
  const base = await supervisor.diskBase();
  const root = hasContent
    ? await images.describeRoot(base.root, signal)
    : { bytes: await allocated(base.root.rootPath), size: base.root.rootBytes, sha256: null };
  const logs = await readdir(logsPathOf(supervisor.directory)).catch((): string[] => []);
  const names = ["disk", ...logs.filter((name) => LOG_NAME.test(name)).map((name) => `log-${name}`)];
  const files = await Promise.all(
    names.map(async (name) => ({ name, bytes: await allocated(movedPath(supervisor.directory, name)) })),
  );
  return { isStopped, image: movedImage(base.image), root, files };
}

/** The blocks of a file from byte `from` on. Throws when the machine's files may change. */
export async function outgoingBlocks(
  supervisor: Supervisor,
  name: string,
  from: number,
): Promise<AsyncIterable<Buffer>> {
  const path = name === "root" ? (await supervisor.diskBase()).root.rootPath : movedPath(supervisor.directory, name);
  await stat(path);
  return readBlocks(path, from);
}

/** The path of a moved file in a machine's directory. */
export const movedPath = (directory: string, name: string): string =>
  name === "disk" ? diskPathOf(directory) : join(logsPathOf(directory), name.slice("log-".length));

/** 0 for a file that is not there. */
const allocated = (path: string): Promise<number> =>
  stat(path).then(
    ({ blocks }) => blocks * 512,
    () => 0,
  );

function movedImage({ digest, source, architecture, os, layerCount, configuration }: UnpackedImage): MovedImage {
  const { env, workdir, user, entrypoint, command } = configuration;
  return { digest, source, architecture, os, layerCount, env, workdir, user, entrypoint, command };
}

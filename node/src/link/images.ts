/**
 * Images of the node on the link: what there is, pulls, archives to import, and local images to remove.
 *
 * Owns an archive while it is imported: a file in the agent's directory of temporary files, which the next
 * agent empties.
 */
import { randomBytes } from "node:crypto";
import { rm } from "node:fs/promises";
import type { ServerResponse } from "node:http";
import { join } from "node:path";
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { ImageProgress } from "@flotilla/contract/link/link";
import { readPullRequest } from "@flotilla/contract/link/generated";
import { imageFaultIn } from "../images/image-refused.ts";
import type { Images } from "../images/images.ts";
import { asDiskFull, DiskFull } from "../images/space.ts";
import { sendJson } from "./answer.ts";
import { readJson, receiveFile } from "./bodies.ts";
import type { Exchange } from "./exchange.ts";

export interface ImageParts {
  readonly images: Images;
  readonly clock: Clock;
  readonly temporaryDirectory: string;
}

/** All that this tenant may use; without one, all. */
export async function listImages({ response, query }: Exchange, { images }: ImageParts): Promise<void> {
  sendJson(response, 200, await images.list(query.get("tenantId")));
}

/** Answers with the progress, and then how it ended. */
export async function pullImage({ request, response, signal }: Exchange, { images, clock }: ImageParts): Promise<void> {
  const { reference, arch, tenantId, isPackage = false } = readPullRequest(await readJson(request, clock));
  const write = beginLines(response);
  await lastLine(write, async () =>
    images.ensure(reference, { arch, tenantId, isPackage, isRefresh: true, onProgress: write, signal }),
  );
  response.end();
}

/** Makes an image of the archive that is the body. */
export async function importImage(
  { request, response, query, signal }: Exchange,
  { images, clock, temporaryDirectory }: ImageParts,
): Promise<void> {
  const { reference } = readPullRequest({ reference: query.get("reference") });
  const path = join(temporaryDirectory, `import-${randomBytes(8).toString("hex")}`);
  const write = beginLines(response);
  try {
    await lastLine(write, async () => {
      await receiveFile(request, path, { clock, signal });
      return images.importArchive(path, reference);
    });
  } finally {
    await rm(path, { force: true });
  }
  response.end();
}

export async function removeImage({ response, query }: Exchange, { images }: ImageParts): Promise<void> {
  const { reference } = readPullRequest({ reference: query.get("reference") });
  await images.removeLocal(reference);
  response.writeHead(204).end();
}

type WriteLine = (line: ImageProgress) => void;

/** Answers with one JSON value per line. */
function beginLines(response: ServerResponse): WriteLine {
  response.writeHead(200, { "content-type": "application/x-ndjson" });
  return (line) => response.write(`${JSON.stringify(line)}\n`);
}

/** Writes how the work ended. */
async function lastLine(write: WriteLine, work: () => ReturnType<Images["ensure"]>): Promise<void> {
  try {
    const { rootPath: _path, rootBytes: _bytes, configuration: _how, source: _source, ...image } = await work();
    write({ kind: "done", image });
  } catch (error) {
    const known = asDiskFull(error);
    const reasonCode = known instanceof DiskFull ? "no_space" : imageFaultIn(error);
    write({ kind: "failed", message: messageOf(known), reasonCode });
  }
}

/**
 * Writes a file of a machine from the caller's body, and removes files.
 *
 * Always: nothing of the body is read before the machine has accepted the operation. The file changes at
 * once, when all of it is on the machine's disk and its hash is the one that was sent; it does not change
 * when the caller disconnects or anything fails. What a refused caller still sends is discarded, so that it
 * gets its answer.
 */
import type { Readable } from "node:stream";
import { Refusal } from "@flotilla/contract/errors";
import type { MachineServices } from "../services.ts";
import { beginOnNode, type FileTarget, onNode } from "./work.ts";

export interface FileWritten {
  /** In hexadecimal. */
  readonly sha256: string;
}

export interface FileContent {
  readonly body: Readable;
  /** What the caller says it is, in hexadecimal. */
  readonly sha256: string | undefined;
  /** The body's length in bytes; null: unknown. */
  readonly bytes: number | null;
}

/** Throws a Refusal when the file is not written. */
export async function writeFile(
  services: MachineServices,
  target: FileTarget,
  { body, sha256, bytes }: FileContent,
): Promise<FileWritten> {
  if (sha256 !== undefined && !/^[0-9a-f]{64}$/i.test(sha256))
    throw new Refusal("invalid_request", "x-content-sha256 is not a SHA-256, which has 64 hexadecimal digits");
  const announced = { sha256: sha256?.toLowerCase() ?? null, bytes };
  const { value, finish } = await beginOnNode(services, target, (files, call) => files.write(call, announced));
  return { sha256: await finish(() => value.send(body)) };
}

/** Removes a file, a link or an empty directory. Throws a Refusal. */
export async function removeFile(services: MachineServices, target: FileTarget): Promise<void> {
  await onNode(services, target, (files, call) => files.remove(call));
}

/**
 * Writes a file of a machine as it comes from the caller, and removes files.
 *
 * Always: nothing of the caller's bytes is taken before the machine has said that it wants them; the file changes at once,
 * when all of it is on the machine's disk and its hash is the one that was sent, and not at all when the caller goes away
 * or anything fails. What a refused caller still sends is thrown away, so that it gets its answer.
 */
import { createHash } from "node:crypto";
import { finished, type Readable } from "node:stream";
import { Refusal } from "@flotilla/contract/errors";
import { LINK_PAYLOAD_BYTES_MAX } from "@flotilla/contract/link-stream";
import type { OpenExec } from "../../link/open-exec.ts";
import type { MachineServices } from "../services.ts";
import { WHOLE } from "./range.ts";
import { beginFileWork, type FileTarget } from "./work.ts";

export interface FileWritten {
  /** In hexadecimal. */
  readonly sha256: string;
}

/** `sha256`: what the caller says of the content. Throws a Refusal when the file is not written. */
export async function writeFile(
  services: MachineServices,
  target: FileTarget,
  content: { readonly body: Readable; readonly sha256: string | undefined },
): Promise<FileWritten> {
  if (content.sha256 !== undefined && !/^[0-9a-f]{64}$/i.test(content.sha256))
    throw new Refusal("invalid_request", "x-content-sha256 is no SHA-256: it has 64 hexadecimal digits");
  const { exec, done } = await beginFileWork(services, target, { operation: "write", ...WHOLE }, () => undefined);
  const hash = createHash("sha256");
  const turn = (work: () => boolean) => services.link.turns.run(target.tenantId, work);
  const sent = pass(content.body, exec, { see: (chunk) => hash.update(chunk), turn });
  try {
    // What is done before all was sent has failed, and throws here.
    await Promise.race([sent.all, done]);
    const sha256 = hash.digest("hex");
    if (content.sha256 !== undefined && content.sha256.toLowerCase() !== sha256)
      throw new Refusal("invalid_request", `the content's SHA-256 is ${sha256}, not the one sent; nothing was written`);
    exec.endInput();
    await done;
    return { sha256 };
  } catch (error) {
    exec.close();
    throw error;
  } finally {
    sent.letGo();
  }
}

type Turn = (work: () => boolean) => boolean | Promise<boolean>;

/** Hands the body on, no faster than it is taken. */
function pass(
  body: Readable,
  exec: OpenExec,
  { see, turn }: { readonly see: (chunk: Buffer) => void; readonly turn: Turn },
): { readonly all: Promise<void>; letGo(): void } {
  let waiting: Promise<void> | undefined;
  const send = (chunk: Buffer): boolean => {
    see(chunk);
    let hasRoom = true;
    for (let at = 0; at < chunk.byteLength; at += LINK_PAYLOAD_BYTES_MAX)
      hasRoom = exec.send("stdin", chunk.subarray(at, at + LINK_PAYLOAD_BYTES_MAX));
    return hasRoom;
  };
  const onData = (chunk: Buffer): void => {
    const sent = turn(() => send(chunk));
    if (sent === true) return;
    body.pause();
    // The body may have ended with this piece.
    waiting = Promise.resolve(sent)
      .then((hasRoom) => (hasRoom ? undefined : exec.room))
      .then(() => void body.resume());
  };
  const all = new Promise<void>((resolve, reject) => {
    finished(body, { writable: false }, (error) => {
      if (error !== undefined && error !== null) reject(error);
      else resolve(waiting);
    });
  });
  all.catch(() => undefined);
  body.on("data", onData);
  return {
    all,
    letGo: () => {
      body.off("data", onData);
      body.resume();
    },
  };
}

export async function removeFile(services: MachineServices, target: FileTarget): Promise<void> {
  const { done } = await beginFileWork(services, target, { operation: "remove", ...WHOLE }, () => undefined);
  await done;
}

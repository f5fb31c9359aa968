/**
 * Why a machine could not be run, for its owner. Pure.
 */
import { messageOf } from "@flotilla/base/errors";

interface Places {
  /** Of the node; owners learn nothing of the host's other directories. */
  readonly nodeDirectory: string;
  readonly diskPath: string;
}

export function failureText(error: unknown, { nodeDirectory, diskPath }: Places): string {
  if (isMissing(error, diskPath))
    return "its disk is missing on its node, and none was made in its place: an operator can put the file back, and the machine starts again";
  return messageOf(error).replaceAll(`${nodeDirectory}/`, "");
}

/** Whether the error, or a cause of it, is that the system has no such file. */
function isMissing(error: unknown, path: string): boolean {
  if (!(error instanceof Error)) return false;
  const { code, path: named } = error as NodeJS.ErrnoException;
  return (code === "ENOENT" && named === path) || isMissing(error.cause, path);
}

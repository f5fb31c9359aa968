/**
 * Why a machine could not be run, for its owner. Pure.
 */
import { messageOf } from "@flotilla/base/errors";

interface Places {
  /** Directory of the node; owners learn nothing of the host's other directories. */
  readonly nodeDirectory: string;
  readonly diskPath: string;
}

export function failureText(error: unknown, { nodeDirectory, diskPath }: Places): string {
  const text = messageOf(error);
  // Drivers pass the system's error on as text, in their own.
  if (text.includes("ENOENT: ") && text.endsWith(` '${diskPath}'`))
    return "its disk is missing on its node, and none was made in its place: an operator can put the file back, and the machine starts again";
  return text.replaceAll(`${nodeDirectory}/`, "");
}

/**
 * Where the link's socket lies: in the node's directory, or, when that path is longer than a socket's may be,
 * in a short private one that is named after it.
 */
import { createHash } from "node:crypto";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** `sun_path` holds 108 bytes with its final NUL. */
const SOCKET_PATH_BYTES_MAX = 107;

export function linkSocketPath(nodeDirectory: string): string {
  const path = join(nodeDirectory, "link.sock");
  if (Buffer.byteLength(path) <= SOCKET_PATH_BYTES_MAX) return path;
  const name = `flotilla-${createHash("sha256").update(nodeDirectory).digest("hex").slice(0, 16)}`;
  // Only root may write to /run; the fake driver also runs without it.
  return join(process.getuid?.() === 0 ? "/run" : tmpdir(), name, "link.sock");
}

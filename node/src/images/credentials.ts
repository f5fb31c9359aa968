/**
 * Registry credentials, from a file in the format of docker's config.json.
 *
 * Always:
 * - the file is read for each pull, so a rotated password works without a restart;
 * - credentials are never logged and never part of an error.
 */
import { open } from "node:fs/promises";
import type { Log } from "@flotilla/base/log";
import { type Credentials, parseCredentials } from "@flotilla/base/registry-credentials";

const FILE_BYTES_MAX = 1024 * 1024;
const NONE: Credentials = { basicFor: () => undefined };

/**
 * Throws when the file cannot be used. Tenants see the message, so it contains neither the path nor the
 * content.
 */
export async function readCredentials(path: string | null, log: Log): Promise<Credentials> {
  if (path === null) return NONE;
  let text: string;
  try {
    await using file = await open(path, "r");
    const facts = await file.stat();
    if ((facts.mode & 0o077) !== 0)
      log.warn({ path }, "other users of this host can read the registry credentials; run chmod 600 on the file");
    if (facts.size > FILE_BYTES_MAX) throw new Error("the file is larger than 1 MiB");
    text = await file.readFile("utf8");
  } catch (error) {
    log.error({ path, error }, "the registry credentials cannot be read");
    throw new Error(
      "the node's registry credentials cannot be read; its operator can find the reason in the node's log",
    );
  }
  try {
    return parseCredentials(text);
  } catch {
    // The parser's message would quote the file.
    log.error({ path }, "the registry credentials are not in the format of docker's config.json");
    throw new Error(
      "the node's registry credentials cannot be read; its operator can find the reason in the node's log",
    );
  }
}

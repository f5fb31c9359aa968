/**
 * Reads the secret variables of new machines: `NAME` from this program's environment, `NAME=-` from standard
 * input, and `NAME=VALUE` as given.
 *
 * The first two keep a value out of the process list, which every user of the host can read.
 */
import type { World } from "../call.ts";
import { Failure, usage } from "../failure.ts";

/** More than the server accepts for all variables of a machine. */
const INPUT_BYTES_MAX = 1024 * 1024;

/**
 * One line break at the end of standard input is removed. Throws a Failure when a value is missing or not
 * text.
 */
export async function readSecrets(
  { environment, streams }: Pick<World, "environment"> & { readonly streams: Pick<World["streams"], "input"> },
  given: readonly string[],
): Promise<Record<string, string>> {
  const secrets = new Map<string, string>();
  let isInputTaken = false;
  for (const text of given) {
    const at = text.indexOf("=");
    const name = at < 0 ? text : text.slice(0, at);
    if (name === "") throw usage("a --secret has no name", "give NAME, NAME=- or NAME=VALUE");
    const value = at < 0 ? environment[name] : text.slice(at + 1);
    if (value === undefined)
      throw usage(
        `--secret ${name}: this program's environment has no ${name}`,
        `export it, or use ${name}=- with a pipe`,
      );
    if (value !== "-" || at < 0) {
      secrets.set(name, value);
      continue;
    }
    if (isInputTaken) throw usage("standard input holds one secret", "give the others in the environment");
    isInputTaken = true;
    secrets.set(name, await readInput(streams.input));
  }
  return Object.fromEntries(secrets);
}

async function readInput(input: AsyncIterable<Buffer | string>): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of input) {
    const bytes = Buffer.from(chunk);
    size += bytes.length;
    if (size > INPUT_BYTES_MAX) throw new Failure("standard input is longer than the 1 MiB that a secret may have");
    chunks.push(bytes);
  }
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Buffer.concat(chunks));
    return text.replace(/\r?\n$/, "");
  } catch {
    throw new Failure("the secret on standard input is not UTF-8 text", "encode it, such as with base64");
  }
}

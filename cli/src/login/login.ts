/**
 * `flotilla login`: saves a server's address and a key, so that later calls need neither.
 *
 * Always:
 * - The key is tried before it is saved.
 * - The key is read without echo, or from standard input, never from an argument, because arguments are
 *   visible in the process list.
 * - The file is readable by the user alone (0600), and is replaced whole.
 */
import { randomBytes } from "node:crypto";
import { mkdirSync, renameSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { Flotilla } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { readUrl, requireKey, savedPath } from "../connection.ts";
import { Failure, localFailure } from "../failure.ts";
import { readSecret } from "./secret.ts";

export interface LoginOptions {
  readonly keyStdin?: boolean;
}

export async function run(call: Call, _operands: readonly string[], options: LoginOptions): Promise<void> {
  const { world } = call;
  const { environment, streams } = world;
  const url = readUrl(environment, call.options);
  const key = options.keyStdin ? await readAll(streams.input) : await readSecret(world, `API key for ${url}: `);
  if (key === "") throw new Failure("no key was given", "paste the key that `flotilla key create` printed");
  requireKey(key, options.keyStdin ? "standard input" : "the terminal");
  const caller = await new Flotilla({ url, apiKey: key }).getCaller().catch((error: unknown) => {
    throw rejected(error, url) ?? error;
  });
  const path = savedPath(environment);
  try {
    save(path, { url, apiKey: key });
  } catch (error) {
    throw localFailure(error, path);
  }
  if (call.output.isJson) return call.output.json(caller);
  call.output.line(`logged in to ${url} as ${caller.tenantName}, with ${caller.scopes.join(" ") || "no scope"}`);
  call.output.note(`saved in ${path}`);
}

/** The usual advice about keys does not fit here, because this command is where a key is given. */
function rejected(error: unknown, url: string): Failure | null {
  const code = error instanceof Error && "code" in error ? error.code : null;
  if (code === "unknown_key") return new Failure(`${url} does not know this key`, "nothing was saved; check the key");
  if (code === "expired_key") return new Failure("this key has expired", "nothing was saved; make a new one");
  return null;
}

async function readAll(input: NodeJS.ReadStream): Promise<string> {
  let text = "";
  for await (const chunk of input) {
    text += String(chunk);
    if (text.length > 10_000) throw new Failure("standard input holds more than a key");
  }
  return text.trim();
}

function save(path: string, saved: { readonly url: string; readonly apiKey: string }): void {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  const temporary = `${path}.${randomBytes(4).toString("hex")}`;
  writeFileSync(temporary, `${JSON.stringify(saved, null, 2)}\n`, { mode: 0o600, flag: "wx" });
  renameSync(temporary, path);
}

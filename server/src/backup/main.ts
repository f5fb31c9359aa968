/**
 * `flotilla backup` and `flotilla restore`, as the program that the command line becomes.
 *
 * Prints what it did on standard output, or on standard error while a backup goes to standard output. A
 * signal ends it: a backup leaves no file then, and a restore can be repeated.
 */
import { createWriteStream, fstatSync } from "node:fs";
import { resolve } from "node:path";
import type { Writable } from "node:stream";
import { systemClock } from "@flotilla/base/clock";
import { ownMessageOf } from "@flotilla/base/errors";
import { API_VERSION } from "@flotilla/contract/openapi";
import { type OperatorSettings, readOperatorSettings, settingsOrExit } from "../config.ts";
import { failureText } from "../db/full-disk.ts";
import { createLog } from "../log.ts";
import { stopSignals } from "../stop.ts";
import { makeBackup } from "./backup.ts";
import { restoreBackup } from "./restore.ts";

const EXIT_REFUSED = 1;

async function main(): Promise<void> {
  const { ask: signal } = stopSignals();
  const verb = process.argv[2] ?? "";
  const settings = settingsOrExit(verb, () => readOperatorSettings(process.argv.slice(2)));
  try {
    await (verb === "restore" ? restore(settings, signal) : backup(settings, signal));
    process.exitCode = 0;
  } catch (error) {
    const reason = signal.aborted ? "it was interrupted" : reasonOf(error);
    process.stderr.write(`flotilla ${verb}: ${reason}\n`);
    process.exitCode = EXIT_REFUSED;
  }
}

/**
 * Files of others are named by their own errors, so a file that this user may not read or write is of the
 * data directory.
 */
function reasonOf(error: unknown): string {
  const isDenied = (error as NodeJS.ErrnoException).code === "EACCES";
  return isDenied ? `${ownMessageOf(error)}; run it as the user that runs the server` : failureText(error);
}

const say = (stream: NodeJS.WriteStream, lines: readonly string[]): void =>
  void stream.write(lines.map((line) => `${line}\n`).join(""));

const count = (number: number, one: string): string => `${number} ${one}${number === 1 ? "" : "s"}`;

async function backup({ to, ...place }: OperatorSettings, signal: AbortSignal): Promise<void> {
  const now = systemClock.now();
  const name = to ?? `flotilla-${new Date(now).toISOString().slice(0, 19).replace(/[-:]/g, "")}Z.tar.gz`;
  const isStream = name === "-";
  if (isStream && process.stdout.isTTY) throw new Error("a backup is not written to a terminal: name a file with --to");
  const sink = isStream ? standardOutput() : resolve(name);
  const made = await makeBackup({ ...place, to: sink, version: API_VERSION, now, signal, log: createLog("warn") });
  const rows = Object.values(made.rows).reduce((sum, each) => sum + each, 0);
  say(isStream ? process.stderr : process.stdout, [
    ...(isStream ? [] : [name]),
    `control plane of ${place.databaseUrl === null ? place.dataDirectory : "DATABASE_URL"}, cluster ${made.clusterId}, as of ${made.createdAt}: ${count(made.tables.length, "table")}, ${count(rows, "row")}, ${made.files.join(", ") || "no keys"}; SHA-256 of the content ${made.sha256}`,
    ...(made.sealedOtherwise === 0 ? [] : [otherKey(made.sealedOtherwise)]),
    "It has secrets: keep it where only operators can read it. Disks and images of machines are not in it: they are on their nodes.",
  ]);
}

const otherKey = (secrets: number): string =>
  `WARNING: ${count(secrets, "secret")} of machines, webhooks or authorities cannot be decrypted with its secrets.key. Unless that key is lost, make the backup with the data directory of a server that has it.`;

/** `process.stdout` on a file takes a write for whole of which only the beginning found room. */
function standardOutput(): Writable {
  // tidy-allow blocking: once, before the backup begins
  const kind = fstatSync(process.stdout.fd);
  if (kind.isFIFO() || kind.isSocket()) return process.stdout;
  return createWriteStream("", { fd: process.stdout.fd, flush: kind.isFile() });
}

async function restore({ operands, revokesKeys, ...place }: OperatorSettings, signal: AbortSignal): Promise<void> {
  const [, from] = operands;
  if (from === undefined) throw new Error("name the file of the backup");
  const log = createLog("warn");
  const { manifest, access } = await restoreBackup({ ...place, from: resolve(from), revokesKeys, signal, log });
  const { createdAt, clusterId } = manifest;
  say(process.stdout, [
    `restored cluster ${clusterId} as of ${createdAt}: ${count(access.machines, "machine")}, ${count(access.nodes, "node")}`,
    "Start it now. Its nodes report within seconds what has happened since, and machines run on. Then check:",
    revokesKeys
      ? "- Every API key, share link and connect token was ended. A new admin key is made at the start."
      : `- ${count(access.keys, "API key")} and ${count(access.shares, "share link")} are valid as they were then, also those ended since: \`flotilla key ls\`, or restore with --revoke-keys.`,
    "- Join tokens have ended. Nodes, tenants and webhooks that were revoked, suspended or removed since are back: do it again.",
    "- `flotilla doctor --fleet` lists machines that nodes have and this control plane does not know.",
    "docs/operations.md, Backup and restore, says what else a restore loses.",
  ]);
}

if (import.meta.main) await main();

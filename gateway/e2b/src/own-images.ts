/**
 * The images of E2B's own templates, made from Debian's packages on this host when a sandbox needs one first.
 *
 * Always:
 * - An image is made once, however many ask for it: callers of this gateway share the making, and gateways
 *   with the same data directory take turns by a lock, which ends with its holder.
 * - A caller waits for WAIT_MS at most. Then the answer says how far the making is, which continues.
 * - Only an operator's key brings images to nodes: that of the data directory, for a server of this host, or
 *   the caller's own. Without one nothing is made.
 * - A failure is not kept: the next caller begins again.
 *
 * A gateway that is killed leaves the script, which completes the archive or is ended with the host; the next
 * making waits for it, uses what is complete and removes what is not.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { createReadStream } from "node:fs";
import { mkdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import type { Clock } from "@flotilla/base/clock";
import { ownMessageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import { Flotilla, FlotillaError, type NodeInfo } from "@flotilla/sdk";
import { Refused } from "./refused.ts";

/** A mirror may hang. */
const MAKE_MS = 30 * 60_000;
/** Clients end a request after a minute, and the sandbox is still to be started. */
const WAIT_MS = 45_000;
const RETRY_SECONDS = 15;
const LINE_CHARACTERS = 200;
const SCRIPT = fileURLToPath(new URL("../../../scripts/make-local-image", import.meta.url));
/** Operands: the script, the kind and the archive. */
const MAKE = 'rm -f "$2".partial.*; exec sh "$0" "$1" "$2"';

export interface OwnImagesParts {
  /** The server's address. */
  readonly url: string;
  /** Where archives are made, and where a server of this host keeps its admin key. */
  readonly dataDirectory: string;
  readonly clock: Clock;
  readonly log: Log;
}

interface Making {
  readonly begunAt: number;
  /** What is done now, for people. */
  stage: string;
  readonly made: Promise<void>;
}

export class OwnImages {
  readonly #parts: OwnImagesParts;
  readonly #makings = new Map<string, Making>();
  readonly #children = new Set<ChildProcess>();

  constructor(parts: OwnImagesParts) {
    this.#parts = parts;
  }

  /** Nodes have the image afterwards. Throws a Refused, also when that takes longer than a caller waits. */
  async require(kind: string, callerKey: string): Promise<void> {
    const { clock } = this.#parts;
    const making = this.#makings.get(kind) ?? this.#begin(kind, await this.#operator(kind, callerKey));
    const ending = new AbortController();
    const late = clock.sleep(WAIT_MS, ending.signal).then(() => "late");
    try {
      if ((await Promise.race([making.made, late])) !== "late") return;
    } finally {
      ending.abort();
    }
    const seconds = Math.round((clock.monotonic() - making.begunAt) / 1000);
    const text = `the image of this template is being made from Debian's packages (for ${seconds} s, now: ${making.stage})`;
    throw new Refused(503, `${text}; try again in ${RETRY_SECONDS} seconds`, { "retry-after": String(RETRY_SECONDS) });
  }

  /** Ends what is made: the script removes what it has begun. */
  close(): void {
    for (const child of this.#children) endGroup(child);
  }

  /** Whose key may bring an image to nodes. */
  async #operator(kind: string, callerKey: string): Promise<Operator> {
    const { url, dataDirectory } = this.#parts;
    const own = isThisHost(url) ? await readFile(join(dataDirectory, "admin.key"), "utf8").catch(() => "") : "";
    for (const apiKey of [own.trim(), callerKey].filter((key) => key !== "")) {
      const flotilla = new Flotilla({ url, apiKey });
      const nodes = await flotilla.listNodes().catch(noneIfRefused);
      const ready = nodes.filter(({ status }) => status === "ready");
      if (ready.length > 0) return { flotilla, nodes: ready };
    }
    const advice = `an operator makes it with \`flotilla image make-local ${kind}\``;
    throw new Refused(
      404,
      `no node has the image of this template, and this gateway may not bring it there: ${advice}`,
    );
  }

  #begin(kind: string, operator: Operator): Making {
    const known = this.#makings.get(kind);
    if (known !== undefined) return known;
    const made = this.#make(kind, operator).finally(() => this.#makings.delete(kind));
    // There may be no caller that still waits for it.
    made.catch(() => undefined);
    const making: Making = { begunAt: this.#parts.clock.monotonic(), stage: "beginning", made };
    this.#makings.set(kind, making);
    return making;
  }

  async #make(kind: string, operator: Operator): Promise<void> {
    const log = this.#parts.log.child({ image: `local/${kind}` });
    log.info({}, "an image is made from Debian's packages, because a sandbox needs it");
    try {
      const directory = join(this.#parts.dataDirectory, "e2b-images");
      const archive = join(directory, `${kind}.tar`);
      await mkdir(directory, { recursive: true });
      await this.#runScript(kind, { directory, archive, log });
      this.#show(kind, log, "bringing it to the nodes");
      await importTo(operator, { archive, reference: `local/${kind}`, log });
      await rm(archive, { force: true });
      log.info({}, "the image is made, and nodes have it");
    } catch (error) {
      log.warn({ reason: ownMessageOf(error) }, "the image could not be made");
      throw new Refused(503, `the image local/${kind} of this template could not be made: ${ownMessageOf(error)}`);
    }
  }

  async #runScript(
    kind: string,
    { directory, archive, log }: { readonly directory: string; readonly archive: string; readonly log: Log },
  ): Promise<void> {
    const operands = [join(directory, `${kind}.lock`), "sh", "-c", MAKE, SCRIPT, kind, archive];
    // In a separate process group, which ends as a whole.
    const child = spawn("flock", operands, { stdio: ["ignore", "ignore", "pipe"], detached: true });
    this.#children.add(child);
    const timer = this.#parts.clock.timer(MAKE_MS, () => endGroup(child));
    let last = "it said nothing";
    const lines = createInterface({ input: child.stderr });
    lines.on("line", (line) => {
      last = line.slice(0, LINE_CHARACTERS);
      const stage = /^I: ([a-z ]+)/.exec(last)?.[1]?.trim();
      if (stage !== undefined) this.#show(kind, log, stage);
    });
    try {
      const code = await new Promise<number | null>((resolve, reject) => {
        child.once("error", reject);
        child.once("close", resolve);
      });
      if (code !== 0) throw new Error(last.replace(/^make-local-image: /, ""));
    } finally {
      timer.cancel();
      this.#children.delete(child);
    }
  }

  #show(kind: string, log: Log, stage: string): void {
    const making = this.#makings.get(kind);
    if (making !== undefined) making.stage = stage;
    log.info({ stage }, "an image is being made");
  }
}

function endGroup({ pid, exitCode, signalCode }: ChildProcess): void {
  if (pid !== undefined && exitCode === null && signalCode === null) process.kill(-pid, "SIGTERM");
}

interface Operator {
  readonly flotilla: Flotilla;
  /** The nodes that run machines now. */
  readonly nodes: readonly NodeInfo[];
}

/** Throws when no node took it. */
async function importTo(
  { flotilla, nodes }: Operator,
  { archive, reference, log }: { readonly archive: string; readonly reference: string; readonly log: Log },
): Promise<void> {
  const failures: string[] = [];
  for (const { id: nodeId } of nodes) {
    try {
      const body = Readable.toWeb(createReadStream(archive)) as ReadableStream<Uint8Array>;
      await flotilla.importImage(body, { query: { reference, nodeId } });
    } catch (error) {
      failures.push(`${nodeId}: ${ownMessageOf(error)}`);
      log.warn({ nodeId, reason: ownMessageOf(error) }, "a node did not take the image");
    }
  }
  if (failures.length === nodes.length) throw new Error(`no node took it (${failures.join("; ")})`);
}

/** Only operators see nodes. */
function noneIfRefused(error: unknown): readonly NodeInfo[] {
  if (error instanceof FlotillaError && (error.status === 401 || error.status === 403)) return [];
  throw error;
}

function isThisHost(url: string): boolean {
  const { hostname } = new URL(url);
  return hostname === "localhost" || hostname === "[::1]" || /^127\.\d+\.\d+\.\d+$/.test(hostname);
}

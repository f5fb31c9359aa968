/**
 * kill -9 of the server, of its embedded PostgreSQL, and of both, at random moments during writes: nothing
 * that was acknowledged is lost, and the service recovers by itself.
 */
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { until } from "../support/until.ts";

const WRITERS = 4;
/**
 * Max keys of each writer; then it revokes its oldest key for each new one, because a tenant may have so many
 * and no more.
 */
const KEYS_MAX = 20;
const PAUSE_MS_MAX = 200;
/** On a busy machine fewer kills fit; the diagnostic line has the number. */
const BUDGET_MS = Number(process.env["FLOTILLA_TEST_CHAOS_SECONDS"] ?? 15) * 1000;
const KILLS_MIN = 8;
const SERVER = fileURLToPath(new URL("../../server/src/main.ts", import.meta.url));

const directory = await mkdtemp(join(tmpdir(), "flotilla-crash-"));
let server: ChildProcess | undefined;
let url = "";
/** What the servers logged as errors; shown when a test fails. */
let problems = "";

async function start(): Promise<void> {
  const child = spawn(process.execPath, [SERVER, "--listen", "127.0.0.1:0", "--data-dir", directory], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { PATH: process.env["PATH"] ?? "", FLOTILLA_LOG_LEVEL: "error" },
  });
  server = child;
  child.stderr?.on("data", (chunk) => {
    problems += chunk;
  });
  const lines = createInterface({ input: child.stdout ?? process.stdin });
  const ended = once(child, "exit").then(() => Promise.reject(new Error(`the server ended: ${problems}`)));
  const [line] = (await Promise.race([once(lines, "line"), ended])) as [string];
  ended.catch(() => undefined);
  url = (JSON.parse(line) as { url: string }).url;
}

async function kill(child: ChildProcess): Promise<void> {
  const ended = once(child, "exit");
  child.kill("SIGKILL");
  await ended;
}

const killed = new Set<number>();

/**
 * The postmaster that serves now; right after a kill its file names a dead one, and later perhaps one that
 * fails.
 */
const postgresPid = (): Promise<number> =>
  until(
    async () => {
      const lines = (await readFile(join(directory, "postgres/data/postmaster.pid"), "utf8")).split("\n");
      const pid = Number(lines[0]);
      const state = (await readFile(`/proc/${pid}/stat`, "utf8")).split(") ")[1]?.[0];
      return lines[7]?.trim() === "ready" && state !== "Z" && !killed.has(pid) && pid;
    },
    { what: "a postmaster that is ready", deadlineMs: 30_000 },
  );

const hasServerEnded = (): boolean => server === undefined || server.exitCode !== null || server.signalCode !== null;

const isReady = async (): Promise<boolean> => (await fetch(`${url}/readyz`)).status === 200;

after(async () => {
  if (server !== undefined && !hasServerEnded()) {
    const ended = once(server, "exit");
    server.kill("SIGTERM");
    await ended;
  }
  await rm(directory, { recursive: true, force: true });
});

/** Makes API keys and revokes them until `isWriting` is false, and remembers what was acknowledged. */
class Writers {
  readonly present = new Set<string>();
  readonly revoked = new Set<string>();
  acknowledged = 0;
  isWriting = true;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #answers = new Map<number | "broken", number>();

  constructor(headers: Readonly<Record<string, string>>) {
    this.#headers = headers;
  }

  get answers(): string {
    return [...this.#answers].map(([status, times]) => `${times} x ${status}`).join(", ");
  }

  has(status: number): boolean {
    return this.#answers.has(status);
  }

  async write(writer: number): Promise<void> {
    const keys: string[] = [];
    while (this.isWriting) {
      const oldest = keys.length < KEYS_MAX ? undefined : keys.shift();
      const isAcknowledged =
        oldest === undefined ? await this.#create(writer, (id) => keys.push(id)) : await this.#revoke(oldest);
      if (isAcknowledged) this.acknowledged++;
      else await until(isReady, { what: "the server to be ready", deadlineMs: 20_000 }).catch(() => undefined);
    }
  }

  async #create(writer: number, onCreated: (id: string) => void): Promise<boolean> {
    const body = JSON.stringify({ description: `writer ${writer}`, scopes: ["machine:read"] });
    const answer = await this.#send("POST", "/v1/apikeys", body);
    if (answer.status !== 200) return false;
    const { id } = JSON.parse(answer.text) as { id: string };
    this.present.add(id);
    onCreated(id);
    return true;
  }

  /** Without an answer the key may be there or not. */
  async #revoke(id: string): Promise<boolean> {
    this.present.delete(id);
    const { status } = await this.#send("DELETE", `/v1/apikeys/${id}`);
    if (status === 204) this.revoked.add(id);
    return status === 204;
  }

  async #send(method: string, path: string, body?: string): Promise<{ status: number | "broken"; text: string }> {
    const answer = await fetch(url + path, { method, headers: this.#headers, ...(body !== undefined && { body }) })
      .then(async (response) => ({ status: response.status, text: await response.text() }))
      // The connection broke with the server: not acknowledged.
      .catch(() => ({ status: "broken" as const, text: "" }));
    this.#answers.set(answer.status, (this.#answers.get(answer.status) ?? 0) + 1);
    return answer;
  }
}

test("kills of server and database under writes lose nothing that was acknowledged", async (context) => {
  await start();
  const key = (await readFile(join(directory, "admin.key"), "utf8")).trim();
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const writers = new Writers(headers);
  let hasEnded = false;
  context.after(() => {
    writers.isWriting = false;
    if (!hasEnded)
      context.diagnostic(`answers: ${writers.answers}; the servers' last errors: ${problems.slice(-5_000)}`);
  });
  const writing = Array.from({ length: WRITERS }, (_, index) => writers.write(index));

  const kills = { server: 0, database: 0, both: 0 };
  const startedAt = performance.now();
  for (let count = 0; ; count++) {
    if (count >= KILLS_MIN && performance.now() - startedAt > BUDGET_MS) break;
    const before = writers.acknowledged;
    // PostgreSQL flushes each file of its directory before it recovers, which takes long on a disk that
    // others write to.
    const hasWritten = (): boolean => writers.acknowledged > before || hasServerEnded();
    await until(hasWritten, { deadlineMs: 60_000, what: "a write after the last kill" });
    assert.ok(!hasServerEnded(), "the server ended by itself");
    const moment = performance.now() + randomInt(PAUSE_MS_MAX);
    await until(() => performance.now() >= moment, { what: "the moment of the kill" });
    const what = (["server", "database", "both"] as const)[randomInt(3)] ?? "both";
    kills[what]++;
    const pid = await postgresPid();
    if (what !== "server") {
      killed.add(pid);
      process.kill(pid, "SIGKILL");
    }
    if (what !== "database" && server !== undefined) {
      await kill(server);
      await start();
      if (what === "server") assert.equal(await postgresPid(), pid, "the running database was adopted");
    }
  }
  writers.isWriting = false;
  await Promise.all(writing);
  await until(isReady, { what: "the server to be ready", deadlineMs: 20_000 });
  const listed = (await (await fetch(`${url}/v1/apikeys`, { headers })).json()) as { id: string }[];
  const ids = new Set(listed.map(({ id }) => id));
  const { present, revoked, acknowledged, answers } = writers;
  const lost = [...present].filter((id) => !ids.has(id));
  const returned = [...revoked].filter((id) => ids.has(id));
  context.diagnostic(
    `kills: ${kills.server} server, ${kills.database} database, ${kills.both} both; acknowledged ${acknowledged}, ` +
      `${revoked.size} of them revocations; lost ${lost.length}; answers: ${answers}`,
  );
  assert.deepEqual({ lost, returned }, { lost: [], returned: [] });
  assert.ok(!writers.has(500), `a request was answered with 500: ${answers}`);
  hasEnded = true;
});

test("a second server on the same data directory is refused with an explanation", async () => {
  const second = spawn(process.execPath, [SERVER, "--listen", "127.0.0.1:0", "--data-dir", directory], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  let text = "";
  second.stderr?.on("data", (chunk) => {
    text += chunk;
  });
  const [code] = await once(second, "exit");
  assert.equal(code, 1);
  assert.match(text, /in use by another Flotilla/);
  assert.ok(await isReady());
});

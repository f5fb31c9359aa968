/**
 * Two servers and a node on a PostgreSQL with a synchronous standby, which is promoted while the primary is
 * dead, or frozen: everything that was acknowledged is there once, machines run on, and the old primary is
 * not used again.
 */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { runCli } from "../../cli/test/run-cli.ts";
import type { Answer, Client } from "../../server/test/support/client.ts";
import { type Receiver, startReceiver } from "../../server/test/support/receiver.ts";
import { type Flotilla, runningBoots, startFlotilla } from "../support/flotilla.ts";
import { type ReplicatedPostgres, startReplicatedPostgres } from "../support/replicated-postgres.ts";
import { until } from "../support/until.ts";

const PATIENT = { deadlineMs: 60_000, everyMs: 20 };
const WORKERS = 3;
/** Every so many machines are kept, the others are deleted. */
const KEEP_EVERY = 3;

const startTwo = async (databaseUrl: string): Promise<Flotilla> =>
  await startFlotilla({
    servers: 2,
    databaseUrl,
    serverEnvironment: () => ({ FLOTILLA_WEBHOOK_NETWORKS: "127.0.0.0/8", FLOTILLA_WEBHOOK_HTTP: "yes" }),
  });

/**
 * Callers that create, start, use and delete machines through both servers, and repeat what was not
 * acknowledged.
 */
class Load {
  /** Machines that must be there, and run, by name. */
  readonly kept = new Map<string, string>();
  /** Machines whose deletion was acknowledged. */
  readonly deleted = new Set<string>();
  readonly answers = new Map<number | string, number>();
  readonly faults: string[] = [];
  cycles = 0;
  #isOver = false;
  readonly #clients: readonly Client[];
  readonly #workers: readonly Promise<void>[];

  constructor(flotilla: Flotilla) {
    this.#clients = [flotilla.client(0), flotilla.client(1)];
    this.#workers = Array.from({ length: WORKERS }, (_, worker) => this.#work(worker));
  }

  /** Each caller finishes what it does. */
  async end(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#workers);
  }

  async #work(worker: number): Promise<void> {
    for (let count = 0; !this.#isOver; count += 1) {
      const name = `w${worker}-${count}`;
      const body = {
        name,
        source: { type: "image", reference: "local/busybox" },
        resources: { cpus: 1, memoryMb: 128, diskGb: 1 },
      };
      const options = { headers: { "idempotency-key": name } };
      const { id } = (await this.#acknowledged((client) => client.post("/v1/machines", body, options), [201])).json;
      await this.#acknowledged((client) => client.post(`/v1/machines/${id}/start`), [200]);
      const { text } = await this.#call(this.#clients[count % 2], (client) =>
        client.post(`/v1/machines/${id}/exec`, { command: `echo ${name}`, timeoutSeconds: 20 }),
      );
      if (text.includes('"stdout"') && !text.includes(name)) this.faults.push(`exec in ${name}: ${text}`);
      if (count % KEEP_EVERY === 0) this.kept.set(name, id);
      else {
        await this.#acknowledged((client) => client.delete(`/v1/machines/${id}`), [204, 404]);
        this.deleted.add(id);
      }
      this.cycles += 1;
    }
  }

  /** Repeats a call, through one server after the other, until it is answered as expected. */
  async #acknowledged(send: (client: Client) => Promise<Answer>, expected: readonly number[]): Promise<Answer> {
    let turn = 0;
    return await until(
      async () => {
        const answer = await this.#call(this.#clients[turn++ % 2], send);
        if (!expected.includes(answer.status)) throw new Error(`${answer.status}: ${answer.text}`);
        return answer;
      },
      { what: "an acknowledged change", ...PATIENT },
    );
  }

  async #call(client: Client | undefined, send: (client: Client) => Promise<Answer>): Promise<Answer> {
    if (client === undefined) throw new Error("there are two servers");
    const answer = await send(client);
    this.answers.set(answer.status, (this.answers.get(answer.status) ?? 0) + 1);
    if (answer.status === 500) this.faults.push(`${answer.method}: ${answer.text}`);
    if (answer.status === 503 && answer.headers.get("retry-after") === null)
      this.faults.push(`no Retry-After: ${answer.text}`);
    return answer;
  }
}

interface Scene {
  readonly flotilla: Flotilla;
  readonly postgres: ReplicatedPostgres;
  readonly load: Load;
  readonly receiver: Receiver;
  /** A machine that ran before, and when it became ready. */
  readonly lasting: { readonly id: string; readonly readyAt: string | null };
}

async function prepare(postgres: ReplicatedPostgres, flotilla: Flotilla): Promise<Scene> {
  const receiver = await startReceiver();
  assert.equal((await flotilla.client().post("/v1/webhooks", { url: receiver.url })).status, 201);
  const { id } = await flotilla.create();
  const { readyAt } = await flotilla.start(id);
  const load = new Load(flotilla);
  await until(() => load.cycles > WORKERS, { what: "machines that were made before", ...PATIENT });
  return { flotilla, postgres, load, receiver, lasting: { id, readyAt } };
}

/** Promotes the standby. Returns how long each server then took to acknowledge a write, in milliseconds. */
async function promote({ postgres, flotilla }: Pick<Scene, "postgres" | "flotilla">): Promise<readonly number[]> {
  const startedAt = performance.now();
  await postgres.standby.promote();
  return await Promise.all(
    [0, 1].map(async (server) => {
      const body = { description: `of server ${server}`, scopes: ["machine:read"] };
      const isMade = async () => (await flotilla.client(server).post("/v1/apikeys", body)).status === 200;
      await until(isMade, { what: `a write through server ${server}`, ...PATIENT });
      return Math.round(performance.now() - startedAt);
    }),
  );
}

/** Ends the load and checks what is there. */
async function check(context: TestContext, scene: Scene): Promise<void> {
  const { flotilla, load, lasting, receiver } = scene;
  const before = load.cycles;
  await until(() => load.cycles > before + WORKERS, { what: "machines that were made afterwards", ...PATIENT });
  await load.end();
  assert.deepEqual(load.faults, []);
  const names = new Set([...load.kept.keys()]);
  for (const server of [0, 1]) {
    const { json } = await flotilla.client(server).get("/v1/machines?limit=1000");
    const listed = (json as { id: string; name: string; state: string }[]).filter(({ id }) => id !== lasting.id);
    assert.deepEqual(listed.map(({ name }) => name).sort(), [...names].sort());
    for (const { name, id, state } of listed) assert.deepEqual([load.kept.get(name), state], [id, "started"], name);
    const listens = async () => /^flotilla_database_up 1$/m.test((await flotilla.client(server).get("/metrics")).text);
    await until(listens, { what: `notifications at server ${server}`, ...PATIENT });
  }
  assert.equal((await flotilla.get(lasting.id, 1)).readyAt, lasting.readyAt, "it runs on");
  const boots = await runningBoots(flotilla);
  for (const id of [lasting.id, ...load.kept.values()]) assert.equal(boots.get(id), 1, `${id} runs once`);
  for (const id of load.deleted) assert.equal(boots.get(id) ?? 0, 0, `${id} was deleted`);
  const { key, url } = flotilla.client(1);
  const environment = { FLOTILLA_URL: url, FLOTILLA_API_KEY: key ?? "" };
  const verified = await runCli(context, ["audit", "verify"], { environment });
  assert.equal(verified.code, 0, `${verified.output}${verified.errors}`);
  const delivered = async (): Promise<boolean> => {
    const ids = new Set(receiver.accepted.map(({ id }) => id));
    const { json } = await flotilla.client().get(`/v1/machines/${lasting.id}/events`);
    return (json as { id: string }[]).every(({ id }) => ids.has(id));
  };
  await until(delivered, { what: "every event of the machine at the webhook", ...PATIENT });
}

const answersOf = ({ answers }: Load): string =>
  [...answers].map(([status, times]) => `${times} x ${status}`).join(", ");

test("when the primary is killed and the standby promoted, nothing that was acknowledged is lost or done twice", async (context) => {
  const postgres = await startReplicatedPostgres(context);
  await using flotilla = await startTwo(postgres.url);
  const scene = await prepare(postgres, flotilla);
  await postgres.primary.signal("SIGKILL");
  const took = await promote(scene);
  await check(context, scene);
  context.diagnostic(`writes ${took.join(" and ")} ms after the promotion; answers: ${answersOf(scene.load)}`);
});

test("when the primary hangs the promoted standby is used, and the old one is not, even when it is all there is", async (context) => {
  const postgres = await startReplicatedPostgres(context);
  await using flotilla = await startTwo(postgres.url);
  const { id } = await flotilla.create();
  await postgres.primary.signal("SIGSTOP");
  const took = await promote({ postgres, flotilla });
  await postgres.primary.signal("SIGCONT");
  context.diagnostic(`writes ${took.join(" and ")} ms after the promotion`);
  assert.equal((await flotilla.start(id, 1)).state, "started");
  // What the old primary had not acknowledged waits for its standby, although its callers have gone.
  const others = "application_name IN ('flotilla', 'flotilla listener') AND wait_event IS DISTINCT FROM 'SyncRep'";
  const isUnused = async () =>
    (await postgres.primary.query(`SELECT FROM pg_stat_activity WHERE ${others}`)).length === 0;
  await until(isUnused, { what: "no connection to the old primary", ...PATIENT });
  const acknowledged = postgres.primary.query("CREATE TABLE written_to_the_old_primary ()").then(
    () => true,
    () => false,
  );
  const own = "application_name = 'test' AND wait_event = 'SyncRep'";
  const waits = async () => (await postgres.primary.query(`SELECT FROM pg_stat_activity WHERE ${own}`)).length === 1;
  await until(waits, { what: "the old primary to acknowledge nothing", ...PATIENT });

  await postgres.standby.signal("SIGKILL");
  for (const server of [0, 1]) {
    const isRefused = async () => (await flotilla.client(server).get("/readyz")).status === 503;
    await until(isRefused, { what: `server ${server} without a database`, ...PATIENT });
    const refused = await flotilla.client(server).post("/v1/apikeys", { scopes: ["machine:read"] });
    assert.deepEqual([refused.status, refused.headers.get("retry-after")], [503, "1"], refused.text);
    const log = async () => /has timeline 1, which is older than 2/.test((await flotilla.servers[server]?.log()) ?? "");
    await until(log, { what: `the reason in the log of server ${server}`, ...PATIENT });
  }
  await postgres.primary.signal("SIGKILL");
  assert.equal(await acknowledged, false);
});

/**
 * kill -9 of the server, an ingress, a node agent, a VMM and PostgreSQL at each step of each course of an
 * app: its strategies, promotion, rollback, a release that fails, scaling and destroying. Four apps are under
 * way at a time, with fake VMs on two nodes, and clients ask them by their host names all the while.
 *
 * After each kill every app reaches what was asked of it, no operation stays open, nothing is left over, and
 * the app is served. While the server is dead no request through the ingress fails, and the other way round.
 * Every run draws some of the cases; FLOTILLA_CASES=all plays all of them.
 */
import assert from "node:assert/strict";
import { randomInt, randomUUID } from "node:crypto";
import { once } from "node:events";
import { readFileSync, realpathSync } from "node:fs";
import { type IncomingMessage, request as httpRequest } from "node:http";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import type { AppInfo } from "@flotilla/contract/apps";
import { connectToRunning } from "../../server/src/embedded-postgres/embedded.ts";
import { drawn } from "../support/drawn.ts";
import { type Flotilla, portToReturnTo, Program, runningBoots, startFlotilla } from "../support/flotilla.ts";
import { pause, until } from "../support/until.ts";
import { AppSteps, type Step } from "./app-steps.ts";

const VICTIMS = ["server", "ingress", "node agent", "VMM", "PostgreSQL"] as const;
type Victim = (typeof VICTIMS)[number];

/** Cases that every run plays. */
const CASES = 5;
const LANES = 4;
const REPLICAS = 2;
/** Between two requests of a client. */
const ASK_EVERY_MS = 20;
const SETTLE_MS = 90_000;
/** Statuses from 200 up: 204 has no body. */
const VERSIONS = 4;

const REPLACING = [
  ...["begun", "placing", "made", "created", "asked to be running", "observed running", "routed"],
  ...["retired", "ended", "removed", "asked to be absent", "forgotten"],
] as const;
const FAILING = [...REPLACING.filter((step) => step !== "routed"), "checking"];

const COURSES = {
  rolling: { steps: REPLACING, go: (lane: Lane) => lane.deploy({ type: "rolling" }) },
  canary: { steps: REPLACING, go: (lane: Lane) => lane.deploy({ type: "canary" }) },
  promoted: {
    steps: [...REPLACING, "awaitingPromotion", "promoted"],
    go: async (lane: Lane) => {
      await lane.deploy({ type: "canary", autoPromote: false });
      await lane.promote();
    },
  },
  blueGreen: { steps: [...REPLACING, "promoted"], go: (lane: Lane) => lane.deploy({ type: "blueGreen" }) },
  rolledBack: { steps: REPLACING, go: (lane: Lane) => lane.rollBack() },
  failing: { steps: FAILING, go: (lane: Lane) => lane.deployFailing() },
  scaled: {
    steps: REPLACING.filter((step) => !["begun", "placing", "ended"].includes(step)),
    go: async (lane: Lane) => {
      for (const count of [REPLICAS + 1, REPLICAS]) await lane.scale(count);
    },
  },
  destroyed: {
    steps: ["destroyed", ...REPLACING],
    go: async (lane: Lane) => {
      await lane.destroy();
      await lane.begin();
    },
  },
} as const satisfies Record<string, { readonly steps: readonly string[]; readonly go: (lane: Lane) => Promise<void> }>;
type Course = keyof typeof COURSES;
const COURSE_NAMES = Object.keys(COURSES) as Course[];

interface Case {
  readonly victim: Victim;
  readonly course: Course;
  readonly step: string;
}

const ALL: readonly Case[] = VICTIMS.flatMap((victim) =>
  COURSE_NAMES.flatMap((course) => COURSES[course].steps.map((step) => ({ victim, course, step }))),
);

/** One app, of which one thing is asked at a time. Each version of it answers with another status. */
class Lane {
  readonly name: string;
  readonly #flotilla: Flotilla;
  /** The version that is to serve, and those that did before. */
  #versions: number[] = [];
  #next = 0;
  /** Whether it is asked to serve. */
  isUp = false;
  /** Its last step, for the errors. */
  last = "none";

  constructor(flotilla: Flotilla, name: string) {
    this.#flotilla = flotilla;
    this.name = name;
  }

  get status(): number {
    return 200 + (this.#versions.at(-1) ?? 0);
  }

  isServing({ instances, replicas, rollout }: AppInfo, count = REPLICAS): boolean {
    return (
      (rollout === null || rollout.phase === "failed") &&
      replicas === count &&
      instances.length === count &&
      instances.every((each) => each.isServing && each.status === "healthy")
    );
  }

  /** With two versions, so that it can be rolled back. */
  async begin(): Promise<void> {
    await this.deploy({ type: "rolling" });
    await this.settled();
    await this.deploy({ type: "blueGreen" });
  }

  async settled(): Promise<void> {
    await this.becomes("settled", (app) => this.isServing(app));
    this.isUp = true;
  }

  async deploy(strategy: object): Promise<void> {
    const present = this.#versions.at(-1);
    do this.#next = (this.#next + 1) % VERSIONS;
    while (this.#next === present);
    await this.#deploy(strategy, 200 + this.#next, {});
    this.#versions.push(this.#next);
  }

  /** A release that is never healthy: it is rolled back. */
  async deployFailing(): Promise<void> {
    await this.#deploy({ type: "canary" }, 500, { healthDeadlineSecs: 2 });
    await this.becomes("rolled back", ({ rollout }) => rollout?.phase === "failed");
  }

  async #deploy(strategy: object, status: number, fields: object): Promise<void> {
    const env = [{ key: "FAKE_LISTEN", value: `8080=${status}` }];
    const health = { type: "http", intervalSecs: 1, timeoutSecs: 5, retries: 1 };
    const of = { name: this.name, image: "local/busybox", replicas: REPLICAS, stopGraceSecs: 1 };
    await this.#ask("/v1/apps", { ...of, env, health, strategy, ...fields });
  }

  /** By the strategy of the release. */
  async rollBack(): Promise<void> {
    await this.once("/rollback");
    const isWaiting = ({ status }: AppInfo): boolean => status === "awaitingPromotion";
    const app = await this.becomes("rolled back", (each) => isWaiting(each) || this.isServing(each));
    if (isWaiting(app)) await this.promote();
    const [before] = this.#versions.splice(-2, 1);
    if (before === undefined) throw new Error("nothing serves");
    this.#versions.push(before);
  }

  /** When the canaries serve. */
  async promote(): Promise<void> {
    await this.becomes("waiting for a promotion", ({ status }) => status === "awaitingPromotion");
    await this.once("/promote");
  }

  /** Once. The key of a request that died with its server is free after a minute. */
  async once(path: string): Promise<void> {
    await this.#ask(`/v1/apps/${this.name}${path}`, {}, { "idempotency-key": randomUUID() });
  }

  async scale(count: number): Promise<void> {
    await this.#ask(`/v1/apps/${this.name}/scale`, { count });
    await this.becomes(`scaled to ${count}`, (app) => this.isServing(app, count));
  }

  async destroy(): Promise<void> {
    this.isUp = false;
    const client = this.#flotilla.client();
    const isGone = async (): Promise<boolean> =>
      [204, 404].includes((await client.delete(`/v1/apps/${this.name}`)).status);
    await until(isGone, { what: `${this.name} to be destroyed` });
    this.#versions = [];
  }

  /** Asks until it is done, as a client of a server that may die while it answers. */
  async #ask(path: string, body: object, headers: Readonly<Record<string, string>> = {}): Promise<void> {
    const client = this.#flotilla.client();
    const isDone = async (): Promise<boolean> => {
      const { status, text: said } = await client.post(path, body, { headers });
      if (status === 200) return true;
      throw new Error(`${status} ${said}`);
    };
    await until(isDone, { what: `${path} of ${this.name} to be answered`, deadlineMs: SETTLE_MS });
  }

  async becomes(what: string, holds: (app: AppInfo) => boolean): Promise<AppInfo> {
    const client = this.#flotilla.client();
    return await until(
      async () => {
        const { status, json, text: said } = await client.get(`/v1/apps/${this.name}`);
        if (status === 200 && holds(json as AppInfo)) return json as AppInfo;
        throw new Error(`${said} ${(await client.get(`/v1/apps/${this.name}/explain`)).text}; last: ${this.last}`);
      },
      { what: `${this.name} to be ${what}`, deadlineMs: SETTLE_MS, everyMs: 50 },
    );
  }
}

interface Failure {
  readonly way: "server" | "ingress";
  readonly app: string;
  readonly said: string;
}

/** Clients that ask each app through each way, one request after the other. */
class Askers {
  readonly #lanes: readonly Lane[];
  readonly #ways: Readonly<Record<Failure["way"], string>>;
  /** Which way is not asked to serve. */
  excused: ReadonlySet<Failure["way"]> = new Set();
  answered = 0;
  excusedFailures = 0;
  readonly failures: Failure[] = [];
  #isOver = false;
  #loops: Promise<unknown> = Promise.resolve();

  constructor(lanes: readonly Lane[], ways: Readonly<Record<Failure["way"], string>>) {
    this.#lanes = lanes;
    this.#ways = ways;
  }

  begin(): void {
    const ways = Object.keys(this.#ways) as Failure["way"][];
    this.#loops = Promise.all(ways.flatMap((way) => this.#lanes.map((lane) => this.#keepAsking(way, lane))));
  }

  async end(): Promise<void> {
    this.#isOver = true;
    await this.#loops;
  }

  /** The status and what was said; 0: there was no answer. */
  async ask(way: Failure["way"], lane: Lane): Promise<readonly [number, string]> {
    const { hostname, port } = new URL(this.#ways[way]);
    const request = httpRequest({ hostname, port, agent: false, headers: { host: `${lane.name}.localhost` } });
    request.end();
    try {
      const [response] = (await once(request, "response")) as [IncomingMessage];
      return [response.statusCode ?? 0, await text(response)];
    } catch (error) {
      return [0, String(error)];
    }
  }

  async #keepAsking(way: Failure["way"], lane: Lane): Promise<void> {
    for (; !this.#isOver; await pause(ASK_EVERY_MS)) {
      if (!lane.isUp) continue;
      const [status, said] = await this.ask(way, lane);
      if (!lane.isUp) continue;
      this.answered += 1;
      if (status >= 200 && status < 200 + VERSIONS) continue;
      if (this.excused.has(way)) this.excusedFailures += 1;
      else this.failures.push({ way, app: lane.name, said: `${status} ${said}` });
    }
  }
}

class Fleet {
  readonly flotilla: Flotilla;
  readonly steps: AppSteps;
  readonly ingress: Program;
  readonly lanes: readonly Lane[];
  readonly askers: Askers;
  readonly #ingressUrl: string;

  constructor(parts: Pick<Fleet, "flotilla" | "steps" | "ingress"> & { readonly ingressUrl: string }) {
    this.flotilla = parts.flotilla;
    this.steps = parts.steps;
    this.ingress = parts.ingress;
    this.#ingressUrl = parts.ingressUrl;
    this.lanes = Array.from({ length: LANES }, (_, at) => new Lane(parts.flotilla, `app-${at}`));
    this.askers = new Askers(this.lanes, { server: parts.flotilla.urls[0] ?? "", ingress: parts.ingressUrl });
  }

  static async start(flotilla: Flotilla): Promise<Fleet> {
    const directory = join(flotilla.directory, "server-0/postgres");
    const database = await connectToRunning(directory);
    assert.ok(database !== undefined);
    const {
      user,
      password,
      database: name,
    } = database.connection as { user: string; password: string; database: string };
    const socket = realpathSync(join(directory, "data"));
    database.close();
    const steps = await AppSteps.watch({ ...database.connection, host: socket });
    const port = await portToReturnTo();
    const ingress = new Program("ingress", "server/src/ingress-main.ts", join(flotilla.directory, "ingress"), {
      DATABASE_URL: `postgres://${user}:${password}@${encodeURIComponent(socket)}/${name}`,
      FLOTILLA_LISTEN: `127.0.0.1:${port}`,
      FLOTILLA_LOG_LEVEL: "debug",
    });
    const fleet = new Fleet({ flotilla, steps, ingress, ingressUrl: `http://127.0.0.1:${port}` });
    await steps.query("UPDATE plans SET max_concurrent_machines = 100, max_apps = 100");
    await fleet.startIngress();
    await Promise.all(
      fleet.lanes.map(async (lane) => {
        await lane.begin();
        await lane.settled();
      }),
    );
    await fleet.untilServed();
    fleet.askers.begin();
    return fleet;
  }

  async close(): Promise<void> {
    await this.askers.end();
    await this.ingress.kill();
    await this.steps.close();
  }

  async startIngress(): Promise<void> {
    await this.ingress.start();
    const isReady = async (): Promise<boolean> => (await fetch(`${this.#ingressUrl}/readyz`)).ok;
    await until(isReady, { what: "the ingress to serve", everyMs: 50 });
    await this.ingress.mustRun();
  }

  /** All apps go through something; the program is killed at the case's step of one of them. */
  async play({ victim, course, step }: Case): Promise<void> {
    const target = randomInt(LANES);
    const reached = Promise.withResolvers<Step>();
    let isReached = false;
    this.steps.onStep = (seen) => {
      const lane = this.lanes.find(({ name }) => name === seen.app);
      if (lane !== undefined) lane.last = seen.step;
      if (isReached || seen.app !== this.lanes[target]?.name || seen.step !== step) return;
      isReached = true;
      reached.resolve(seen);
    };
    const running = Promise.all(
      this.lanes.map(async (lane, at) => {
        const chosen = at === target ? course : (COURSE_NAMES[randomInt(COURSE_NAMES.length)] ?? "rolling");
        await COURSES[chosen].go(lane);
        await lane.settled();
      }),
    );
    const late = running.then(() => until(() => isReached, { what: `${step} of ${course}` }));
    await Promise.race([reached.promise, late]);
    await this.#kill(victim, await reached.promise);
    await running;
    await this.untilServed();
    await this.#untilNothingIsLeft();
    this.askers.excused = new Set();
  }

  /** And starts it again, where nothing else does. */
  async #kill(victim: Victim, { app, machineId }: Step): Promise<void> {
    const { flotilla, askers } = this;
    switch (victim) {
      case "server":
        askers.excused = new Set(["server"]);
        await flotilla.servers[0]?.kill();
        return await flotilla.startServer();
      case "ingress":
        askers.excused = new Set(["ingress"]);
        await this.ingress.kill();
        return await this.startIngress();
      case "node agent": {
        askers.excused = new Set(["server", "ingress"]);
        const node = randomInt(flotilla.nodes.length);
        await flotilla.nodes[node]?.kill();
        return await flotilla.startNode(node);
      }
      case "VMM":
        askers.excused = new Set(["server", "ingress"]);
        return await this.#crash(app, machineId);
      case "PostgreSQL":
        askers.excused = new Set(["server", "ingress"]);
        return await this.#killDatabase();
    }
  }

  /** That of the instance where it runs, otherwise of another one, of the app if it has any. */
  async #crash(app: string, machineId: string | null): Promise<void> {
    const others = await this.steps.query<{ id: string }>(`
      SELECT i.machine_id AS id FROM app_instances i JOIN apps a ON a.id = i.app_id JOIN machines m ON m.id = i.machine_id
      WHERE m.observed_state = 'running' ORDER BY a.name <> '${app}', i.machine_id`);
    const said: string[] = [];
    for (const id of [...(machineId === null ? [] : [machineId]), ...others.map((each) => each.id)]) {
      const { status, text: why } = await this.flotilla
        .client()
        .post(`/v1/machines/${id}/exec`, { command: ["crash"] });
      // What is refused with 4xx does not run. The command is answered or broken off, as its VMM ends.
      if (status < 400 || status >= 500) return;
      said.push(`${id}: ${status} ${why}`);
    }
    assert.fail(`no VMM could be killed: ${said.join(", ")}`);
  }

  async #killDatabase(): Promise<void> {
    const pidFile = join(this.flotilla.directory, "server-0/postgres/data/postmaster.pid");
    const pidOf = (): number => Number(readFileSync(pidFile, "utf8").split("\n")[0]);
    const pid = pidOf();
    process.kill(pid, "SIGKILL");
    await until(() => pidOf() !== pid, { what: "PostgreSQL to be started again" });
    const isReady = async (): Promise<boolean> => (await this.flotilla.client().get("/readyz")).status === 200;
    await until(isReady, { what: "the server to be ready" });
    await this.steps.listen();
  }

  /** Each app answers with its version, on both ways. */
  async untilServed(): Promise<void> {
    for (const way of ["server", "ingress"] as const)
      for (const lane of this.lanes) {
        const isServed = async (): Promise<boolean> => {
          const [status, said] = await this.askers.ask(way, lane);
          assert.equal(status, lane.status, said);
          return true;
        };
        await until(isServed, { what: `${lane.name} to be served by the ${way}` });
      }
  }

  /** Nothing but the instances of what is asked for is in the database and on the nodes. */
  async #untilNothingIsLeft(): Promise<void> {
    const isClean = async (): Promise<boolean> => {
      assert.deepEqual(await this.steps.query(OPEN), []);
      const wanted = await this.steps.query<{ id: string }>(WANTED);
      assert.deepEqual(await this.#idsOnNodes(), wanted.map(({ id }) => id).toSorted());
      return true;
    };
    await until(isClean, { what: "nothing to be left" });
  }

  async #idsOnNodes(): Promise<readonly string[]> {
    const boots = await Promise.all(this.flotilla.nodes.map((_, node) => runningBoots(this.flotilla, node)));
    return boots
      .flatMap((each) => [...each].flatMap(([id, count]) => Array.from({ length: count }, () => id)))
      .toSorted();
  }

  /** Destroys all apps: neither rows nor VMs nor leases of ingresses are left. */
  async finish(): Promise<void> {
    await Promise.all(this.lanes.map((lane) => lane.destroy()));
    const isEmpty = async (): Promise<boolean> => {
      assert.deepEqual(await this.steps.query(ROWS), []);
      assert.deepEqual(await this.#idsOnNodes(), []);
      return true;
    };
    await until(isEmpty, { what: "all apps to have gone" });
  }
}

/** Rollouts and operations of apps that have not ended, and rows of instances that are not asked for. */
const OPEN = `
  SELECT 'rollout' AS what, id FROM app_rollouts WHERE ended_at IS NULL
  UNION ALL SELECT 'operation', id FROM operations WHERE kind LIKE 'app %' AND status NOT IN ('succeeded', 'failed', 'canceled')
  UNION ALL SELECT 'instance', machine_id FROM app_instances WHERE retired_at IS NOT NULL OR NOT is_routed
  UNION ALL SELECT 'machine', m.id FROM machines m WHERE deleted_at IS NULL AND NOT EXISTS (SELECT FROM app_instances WHERE machine_id = m.id)`;
const WANTED = "SELECT machine_id AS id FROM app_instances";
const ROWS = `
  SELECT 'instance' AS what, machine_id AS id FROM app_instances
  UNION ALL SELECT 'owner', machine_id FROM machine_owners
  UNION ALL SELECT 'machine', id FROM machines WHERE deleted_at IS NULL
  UNION ALL SELECT 'lease', id FROM ingress_leases WHERE lease_until > now()`;

test("whichever program is killed at whichever step, an app reaches what was asked of it, and nothing is left", async (t) => {
  const environment = { FLOTILLA_CPU_OVERCOMMIT: "64", FLOTILLA_MEMORY_OVERCOMMIT: "16" };
  await using flotilla = await startFlotilla({ nodes: 2, serverEnvironment: () => environment });
  const fleet = await Fleet.start(flotilla);
  const cases = drawn(ALL, CASES);
  try {
    for (const each of cases) {
      const startedAt = performance.now();
      await fleet.play(each).catch((error: unknown) => {
        throw new Error(`the ${each.victim} was killed at "${each.step}" of ${each.course}`, { cause: error });
      });
      const { failures } = fleet.askers;
      const what = `${each.victim} at "${each.step}" of ${each.course}`;
      t.diagnostic(`${what}: ${Math.round(performance.now() - startedAt)} ms`);
      assert.deepEqual(failures, [], what);
    }
    await fleet.finish();
  } finally {
    await fleet.close();
    const { answered, excusedFailures } = fleet.askers;
    t.diagnostic(
      `${cases.length} kills of ${ALL.length} cases; ${answered} requests, ${excusedFailures} failed on a way that was killed`,
    );
  }
});

/**
 * Does what users may do with machines, in random order and concurrently, and records the answers.
 *
 * A run has consecutive steps, and a step has concurrent calls; meanwhile an observer reads. Runs are plain
 * data made by fast-check, so that a failed one can be shrunk and repeated from its seed. Each run has its
 * own tenant with small ceilings; at its end every machine must still work, and is deleted.
 */
import type { MachineInfo } from "@flotilla/contract/machines";
import fc from "fast-check";
import type { Answer, Client } from "../../server/test/support/client.ts";
import type { Flotilla } from "./flotilla.ts";
import { type Ceilings, describe, faultsOf, type Operation, type Verb, type World } from "./history.ts";
import { monotonic, pause } from "./until.ts";

const CALL_DEADLINE_MS = 60_000;
const SCOPES = ["machine:read", "machine:create", "machine:delete", "machine:exec", "machine:files"];

/** One user's action. Numbers choose among the existing things. */
interface Call {
  readonly verb: Verb | "createAgain";
  readonly machine: number;
  readonly server: number;
  readonly name: "" | "blue" | "green";
  readonly kind: "plain" | "slow" | "failing" | "ephemeral";
  readonly path: string;
  readonly session: string;
}

export type Play = readonly (readonly Call[])[];

const OFTEN: readonly Call["verb"][] = ["start", "stop", "exec", "put", "read", "sessionExec"];
const SOMETIMES: readonly Call["verb"][] = [
  "create",
  "createAgain",
  "delete",
  "startDetached",
  "openSession",
  "powerOff",
  "crash",
];

const PATHS = ["/workspace/new folder/ü %41", "/tmp/a"] as const;

/** `restarts`: how often, of a hundred calls, the node agent is killed and started. */
export function plays(options: { readonly stepsMax: number; readonly restarts: number }): fc.Arbitrary<Play> {
  const verb = fc.oneof(
    { weight: 60, arbitrary: fc.constantFrom(...OFTEN) },
    { weight: 38, arbitrary: fc.constantFrom(...SOMETIMES) },
    { weight: 2, arbitrary: fc.constant<Verb>("closeSession") },
    { weight: options.restarts, arbitrary: fc.constant<Verb>("restartNode") },
  );
  const call = fc.record({
    verb,
    machine: fc.nat(3),
    server: fc.nat(1),
    name: fc.constantFrom("", "", "blue", "green"),
    kind: fc.constantFrom("plain", "plain", "plain", "slow", "failing", "ephemeral"),
    path: fc.constantFrom(...PATHS),
    session: fc.constantFrom("s", "t"),
  } satisfies { [Name in keyof Call]: fc.Arbitrary<Call[Name]> });
  const step = fc.oneof(
    { weight: 3, arbitrary: fc.array(call, { minLength: 1, maxLength: 1 }) },
    { weight: 2, arbitrary: fc.array(call, { minLength: 2, maxLength: 3 }) },
  );
  // fast-check would begin with runs of a step or two.
  return fc.noBias(fc.array(step, { minLength: 1, maxLength: options.stepsMax, size: "max" }));
}

export interface Stage extends Ceilings {
  readonly flotilla: Flotilla;
  readonly driver: "fake" | "qemu";
  readonly resources: { readonly cpus: number; readonly memoryMb: number; readonly diskGb: number };
  readonly lookEveryMs: number;
  /** Ends the VM of a running machine. */
  killVm(client: Client, id: string): Promise<Told | undefined>;
}

/** How often each verb got each answer, such as `exec 200`. */
type Counts = Map<string, number>;

/** Throws with the whole history when an answer is impossible. */
async function perform(stage: Stage, play: Play, counts: Counts): Promise<void> {
  const player = new Player(stage, await tenantOf(stage));
  await player.run(play);
  for (const { verb, status } of player.history)
    counts.set(`${verb} ${status}`, (counts.get(`${verb} ${status}`) ?? 0) + 1);
  const faults = faultsOf(player.history, player.world);
  if (faults.length > 0) throw new Error(`${faults.join("\n")}\n\nthe history:\n${describe(player.history)}\n`);
}

/**
 * Performs random runs until there were `playsMax` or `forMs` are over, the first in any case, or
 * FLOTILLA_PLAYS of them. Throws fast-check's error, which names the seed and path of the smallest failed
 * run; FLOTILLA_SEED and FLOTILLA_PATH repeat it.
 */
export async function performMany(
  stage: Stage,
  arbitrary: fc.Arbitrary<Play>,
  { playsMax, forMs }: { readonly playsMax: number; readonly forMs: number },
): Promise<void> {
  const { FLOTILLA_PLAYS: asked, FLOTILLA_SEED: seed, FLOTILLA_PATH: path } = process.env;
  const counts: Counts = new Map();
  const endsAt = asked === undefined ? monotonic() + forMs : Number.POSITIVE_INFINITY;
  let performed = 0;
  const property = fc.asyncProperty(arbitrary, async (play) => {
    // Shrinking a failed run also ends with the time.
    if (performed > 0 && monotonic() > endsAt) return;
    performed += 1;
    await perform(stage, play, counts);
  });
  await fc.assert(property, {
    numRuns: Number(asked ?? playsMax),
    ...(seed === undefined ? {} : { seed: Number(seed) }),
    ...(path === undefined ? {} : { path }),
  });
  process.stdout.write(`${performed} plays, ${summary(counts)}\n`);
}

/** Summary for the output of a test: how many calls there were, and their answers. */
function summary(counts: Counts): string {
  const calls = [...counts.values()].reduce((sum, count) => sum + count, 0);
  return `${calls} calls: ${[...counts]
    .toSorted()
    .map(([what, count]) => `${count} ${what}`)
    .join(", ")}`;
}

let tenants = 0;

/** Clients to choose from: all of one server, another server in each run. */
async function tenantOf({ flotilla, maxMachines, maxConcurrentMachines }: Stage): Promise<readonly Client[]> {
  const admin = flotilla.client();
  const name = `play ${++tenants}`;
  const rate = { rateRequestsPerSecond: 10_000, rateBurst: 100_000 };
  const plan = (await admin.post("/v1/plans", { name, maxMachines, maxConcurrentMachines, ...rate })).json;
  const tenant = (await admin.post("/v1/tenants", { name, planId: plan.id })).json;
  const { key } = (await admin.post("/v1/apikeys", { tenantId: tenant.id, scopes: SCOPES })).json;
  // A change made through one server shows on another within milliseconds (machine-cache.ts), which the
  // checker does not allow for.
  return [flotilla.client(tenants % flotilla.servers.length).withKey(key)];
}

const FAKE_WORDS: Readonly<Record<Call["kind"], Readonly<Record<string, string>>>> = {
  plain: {},
  slow: { FAKE_BOOT_MS: "150" },
  failing: { FAKE_BOOT_FAIL: "1" },
  ephemeral: {},
};

class Player {
  readonly history: Operation[] = [];
  readonly world: World & { readonly failing: Set<string>; readonly ephemeral: Set<string> };
  readonly #stage: Stage;
  readonly #clients: readonly Client[];
  readonly #machines: string[] = [];
  readonly #created: { readonly key: string; readonly body: object; readonly subject: string; firstAnswer: string }[] =
    [];
  #ticks = 0;
  #counter = 0;
  #isOver = false;

  constructor(stage: Stage, clients: readonly Client[]) {
    this.#stage = stage;
    this.#clients = clients;
    const { maxMachines, maxConcurrentMachines, driver } = stage;
    const isFake = driver === "fake";
    const crashes = { forgetsFiles: isFake, crashesHitStarts: !isFake };
    this.world = { maxMachines, maxConcurrentMachines, ...crashes, failing: new Set(), ephemeral: new Set() };
  }

  async run(play: Play): Promise<void> {
    const looking = this.#look();
    try {
      for (const kind of ["plain", "plain"] as const) await this.#create({ server: 0, name: "", kind });
      for (const id of this.#machines)
        await this.#machineCall("openSession", id, 0, `/${id}/sessions`, { subject: "s", body: { id: "s" } });
      for (const step of play) {
        const restart = step.find(({ verb }) => verb === "restartNode");
        const others = step.filter(({ verb }) => verb !== "restartNode");
        await Promise.all([restart && this.#restart(), ...others.map((call) => this.#play(call))]);
      }
      await this.#finish();
    } finally {
      this.#isOver = true;
      await looking;
    }
  }

  /** In any case: each machine works, its name is free once it is deleted, and the plan's places are free. */
  async #finish(): Promise<void> {
    for (const id of this.#machines) await this.#machineCall("stop", id, 0, `/${id}/stop`);
    for (const id of this.#machines) {
      await this.#machineCall("start", id, 1, `/${id}/start`);
      for (const path of PATHS) await this.#use({ path, session: "s", server: 0 }, "read", id);
      await this.#use({ path: "", session: "s", server: 1 }, "sessionExec", id);
      await this.#machineCall("get", id, 0, `/${id}`);
      await this.#machineCall("delete", id, 1, `/${id}`);
    }
    await this.#list(0);
  }

  async #look(): Promise<void> {
    for (let turn = 0; !this.#isOver; turn += 1) {
      const id = this.#chosen(turn);
      if (turn % 3 === 0 || id === undefined) await this.#list(turn);
      else await this.#machineCall("get", id, turn, `/${id}`);
      await pause(this.#stage.lookEveryMs);
    }
  }

  async #play(call: Call): Promise<void> {
    const { verb } = call;
    if (verb === "create") return this.#create(call);
    if (verb === "createAgain") return this.#createAgain(call);
    const id = this.#chosen(call.machine);
    if (id !== undefined) await this.#use(call, verb, id);
  }

  async #use(call: Pick<Call, "path" | "session" | "server">, verb: Verb, id: string): Promise<void> {
    const { server, session, path } = call;
    const word = `w${++this.#counter}`;
    const plain = (method: string, tail: string, body?: object) =>
      this.#machineCall(verb, id, server, `/${id}${tail}`, { method, ...(body === undefined ? {} : { body }) });
    switch (verb) {
      case "start":
        return plain("POST", "/start");
      case "startDetached":
        return plain("POST", "/start?detach=true");
      case "stop":
        return plain("POST", "/stop");
      case "get":
        return plain("GET", "");
      case "delete":
        return plain("DELETE", "");
      case "exec":
        return this.#machineCall(verb, id, server, `/${id}/exec`, {
          body: { command: ["echo", word] },
          content: word,
        });
      case "powerOff":
        return plain("POST", "/exec", { command: ["poweroff", "-f"] });
      case "crash":
        return this.#record({ verb, machine: id }, () => this.#stage.killVm(this.#client(server), id));
      case "put":
      case "read": {
        const where = `/${id}/files?path=${encodeURIComponent(path)}`;
        const method = verb === "put" ? "POST" : "GET";
        const content = verb === "put" ? word : "";
        const raw = verb === "put" ? { raw: word } : {};
        return this.#machineCall(verb, id, server, where, { method, subject: path, content, ...raw });
      }
      case "openSession":
        return this.#machineCall(verb, id, server, `/${id}/sessions`, { subject: session, body: { id: session } });
      case "closeSession":
        return this.#machineCall(verb, id, server, `/${id}/sessions/${session}`, {
          method: "DELETE",
          subject: session,
        });
      case "sessionExec":
        return this.#machineCall(verb, id, server, `/${id}/sessions/${session}/exec`, {
          subject: session,
          content: word,
          body: { command: `echo "$WORD"; export WORD=${word}` },
        });
      case "create":
      case "list":
      case "restartNode":
        throw new Error(`${verb} is of no one machine`);
    }
  }

  /** A machine by number, rarely a deleted one. */
  #chosen(number: number): string | undefined {
    return this.#machines.slice(-this.#stage.maxMachines)[number % this.#stage.maxMachines] ?? this.#machines[0];
  }

  // Calls.

  #client(server: number): Client {
    // There is at least one.
    return this.#clients[server % this.#clients.length] as Client;
  }

  async #machineCall(
    verb: Verb,
    machine: string,
    server: number,
    path: string,
    options: {
      readonly method?: string;
      readonly body?: object;
      readonly raw?: string;
      readonly subject?: string;
      readonly content?: string;
    } = {},
  ): Promise<void> {
    const { method = METHODS[verb] ?? "POST", subject = "", content = "", ...sent } = options;
    const signal = AbortSignal.timeout(CALL_DEADLINE_MS);
    await this.#record({ verb, machine, subject, content }, () =>
      this.#client(server).call(method, `/v1/machines${path}`, { ...sent, signal }),
    );
  }

  async #list(server: number): Promise<void> {
    await this.#machineCall("list", "", server, "", { method: "GET" });
  }

  /** `call` resolves with undefined when there was nothing to do. */
  async #record(
    what: { readonly verb: Verb; readonly machine: string } & Partial<Operation>,
    call: () => Promise<Told | undefined>,
  ): Promise<void> {
    const begunAt = ++this.#ticks;
    const answer = await call().catch((error: unknown) => ({
      status: 0,
      headers: new Headers(),
      text: error instanceof Error ? `${error.message} ${causeOf(error)}` : String(error),
    }));
    if (answer === undefined) return;
    const { status, text, headers } = answer;
    const code = headers.get("x-error-code") ?? "";
    const isNew = what.verb === "create" && status === 201 && what.firstAnswer === undefined;
    const machine = isNew ? (JSON.parse(text) as MachineInfo).id : what.machine;
    const endedAt = ++this.#ticks;
    this.history.push({ subject: "", content: "", ...what, machine, begunAt, endedAt, status, code, text });
  }

  // What is more than one call.

  async #create({ server, name, kind }: Pick<Call, "server" | "name" | "kind">): Promise<void> {
    const isFake = this.#stage.driver === "fake";
    const body = {
      source: { type: "image", reference: "local/busybox" },
      resources: this.#stage.resources,
      ...(name === "" ? {} : { name }),
      ...(isFake ? { env: FAKE_WORDS[kind] } : {}),
      ephemeral: kind === "ephemeral",
    };
    const key = `key-${++this.#counter}`;
    const send = { method: "POST", key, body };
    const created = { key, body, subject: name, firstAnswer: "" };
    await this.#record({ verb: "create", machine: "", subject: name }, async () => {
      const answer = await this.#sendCreate(server, send);
      if (answer.status === 201) this.#note((answer.json as MachineInfo).id, isFake ? kind : "plain");
      if (answer.status === 201 && kind === "ephemeral") this.world.ephemeral.add((answer.json as MachineInfo).id);
      created.firstAnswer = `${answer.status} ${answer.text}`;
      return answer;
    });
    this.#created.push(created);
  }

  #note(id: string, kind: Call["kind"]): void {
    this.#machines.push(id);
    if (kind === "failing") this.world.failing.add(id);
  }

  #sendCreate(server: number, { key, body }: { readonly key: string; readonly body: object }): Promise<Answer> {
    const signal = AbortSignal.timeout(CALL_DEADLINE_MS);
    return this.#client(server).post("/v1/machines", body, { headers: { "idempotency-key": key }, signal });
  }

  async #createAgain({ server, machine }: Call): Promise<void> {
    const earlier = this.#created[machine % this.#created.length];
    if (earlier === undefined) return;
    const { subject, firstAnswer } = earlier;
    await this.#record({ verb: "create", machine: "", subject, firstAnswer }, () => this.#sendCreate(server, earlier));
    const other = { ...earlier, body: { ...earlier.body, workdir: "/elsewhere" } };
    const answer = await this.#sendCreate(server, other);
    if (answer.headers.get("x-error-code") !== "idempotency_mismatch")
      throw new Error(`another body under the same key was answered with ${answer.status} ${answer.text}`);
  }

  async #restart(): Promise<void> {
    const { flotilla } = this.#stage;
    await this.#record({ verb: "restartNode", machine: "" }, async () => {
      await flotilla.nodes[0]?.kill();
      await flotilla.startNode();
      return DONE;
    });
  }
}

const causeOf = ({ cause }: Error): string => (cause instanceof Error ? cause.message : "");

/** The answer of actions that are not calls. */
export const DONE = { status: 200, headers: new Headers(), text: "" };
type Told = Pick<Answer, "status" | "headers" | "text">;

const METHODS: Partial<Record<Verb, string>> = { get: "GET", delete: "DELETE" };

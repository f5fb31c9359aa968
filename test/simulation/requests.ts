/**
 * What users and operators request of a simulated cluster, and what they know from the answers.
 */
import type { EndpointName } from "@flotilla/contract/endpoints";
import { randomIds } from "../../server/src/ids.ts";
import { phaseOf } from "../../server/src/machines/state.ts";
import type { Caller } from "../../server/src/auth/caller.ts";
import { OPERATOR, OTHER } from "./callers.ts";
import { AppRequests, type Send } from "./app-requests.ts";
import { BranchRequests, type Branched } from "./branch-requests.ts";
import type { Cluster } from "./cluster.ts";
import type { Rows } from "./rows.ts";
import type { Reply, SimulatedServer } from "./server.ts";

const MACHINES_MAX = 7;
const POOLS_MAX = 2;
/** A machine with one of them ends by itself. */
const RESTLESS = ["FAKE_CRASH_AFTER_MS", "FAKE_POWEROFF_AFTER_MS", "FAKE_HANG_AFTER_MS"] as const;
/** How many machines and pools are the other tenant's, and how many seeds have it. */
const OTHERS = 0.35;
const WITH_OTHER = 0.6;
/** In how many seeds there are apps. */
const WITH_APPS = 0.3;
/** In how many seeds VMs are prepared. */
const PREPARING = 0.15;
/** A server that misses a notification may answer from memory for 5 s. */
const STALE_MS_MAX = 5_000;

interface Call {
  /** Default: the owner of what the parameters name, or the operator. */
  readonly caller?: Caller;
  readonly params?: object;
  readonly query?: object;
  readonly body?: unknown;
  readonly madeId?: string;
}

interface Claim {
  readonly pool: string;
  readonly claimId: string;
  readonly caller: Caller;
}

/** How often it is chosen, and what it does. */
type Choice = readonly [number, () => void];

export class Requests {
  readonly #cluster: Cluster;
  /** How often each endpoint was called. */
  readonly calls = new Map<string, number>();
  /** Machines whose creation was acknowledged. */
  readonly created = new Set<string>();
  /** Machines whose deletion was requested, whatever came of it. */
  readonly deletions = new Set<string>();
  /** Machines whose guests end by themselves. */
  readonly restless = new Set<string>();
  /** Calls without an answer. */
  open = 0;
  /** When a deletion was acknowledged. */
  readonly #deletedAt = new Map<string, number>();
  /** Machines of which callers may request something. */
  readonly #machines: string[] = [];
  /** Owners of machines and of pools. */
  readonly #owners = new Map<string, Caller>();
  readonly #hasOther: boolean;
  /** null: this seed has no apps. */
  readonly #apps: AppRequests | null;
  /** null: this seed has no branches. */
  readonly #branches: BranchRequests | null;
  readonly #pools: string[] = [];
  /** The machine that each claim got, by its id. */
  readonly #claims = new Map<string, string>();
  /** Pools and claims are requested more often. */
  prefersPools = false;
  /** Sizes of machines: small ones reach the ceiling of the plan, large ones those of nodes. */
  readonly #cpus: readonly number[];

  constructor(cluster: Cluster) {
    this.#cluster = cluster;
    const { random } = cluster.world;
    this.#cpus = random.pick([[1], [1, 1, 2, 3], [2, 3]]);
    const arePrepared = random.happens(PREPARING);
    this.#hasOther = random.happens(WITH_OTHER);
    const send: Send = (name, call, onReply) => this.#send(name, call, onReply);
    this.#apps = random.happens(WITH_APPS) ? new AppRequests(cluster, OPERATOR, send) : null;
    this.#branches = BranchRequests.ofSeed(
      cluster.world.seed,
      (name, call, onReply) => this.#send(name, call, onReply),
      (branched) => this.#branched(branched),
    );
    if (arePrepared) for (const node of cluster.nodes) node.preparingMsMax = random.pick([50, 3_000]);
  }

  /** A branch is under way, which takes a tenth of a second. */
  get isBranching(): boolean {
    return (this.#branches?.open ?? 0) > 0;
  }

  /** Requests something at random. */
  request(rows: Rows | null): void {
    const { random } = this.#cluster.world;
    const often = this.prefersPools ? 6 : 1;
    const ofPools: readonly Choice[] = [
      [often, () => this.pool()],
      [2 * often, () => this.#claim()],
      [0.4, () => this.#deletePool()],
      [often, () => this.#useWaiting(rows)],
      [0.4 * often, () => this.#replaceLost()],
    ];
    if (this.#apps !== null && random.happens(0.5)) return this.#choose(this.#apps.choices);
    if (this.prefersPools && random.happens(0.3)) return this.#choose(ofPools);
    if (this.#machines.length === 0 || (this.#machines.length < MACHINES_MAX && random.happens(0.2)))
      return this.#create();
    const id = random.pick(this.#machines);
    // Callers change their minds before the first request has had its effect.
    if (random.happens(0.25))
      this.#cluster.world.after(random.between(0, 300), null, () => this.#choose(this.#ofMachine(id, rows)));
    const node = random.pick(this.#cluster.nodes).name;
    this.#choose([
      ...this.#ofMachine(id, rows),
      [0.8, () => this.#all()],
      [2, () => this.#drain(node)],
      [1, () => this.#send("cancelDrain", { params: { id: node } })],
      [1.5, () => this.#cancel(rows)],
      [0.5, () => this.#send("cordonNode", { params: { id: node } })],
      [0.5, () => this.#send("maintainNode", { params: { id: node } })],
      [0.5, () => this.uncordon(node)],
      [0.7, () => this.#getDeleted()],
      [0.5, () => this.#list()],
      ...ofPools,
    ]);
  }

  /** What is requested of one machine. */
  #ofMachine(id: string, rows: Rows | null): readonly Choice[] {
    const { random } = this.#cluster.world;
    const node = random.pick(this.#cluster.nodes).name;
    return [
      [6, () => this.#send("startMachine", { params: { id }, query: random.happens(0.3) ? { detach: true } : {} })],
      [3, () => this.#send("stopMachine", { params: { id }, query: random.happens(0.4) ? { keepMemory: true } : {} })],
      [1.5, () => this.#delete(id)],
      [4, () => this.#send("moveMachine", { params: { id }, body: random.happens(0.5) ? { nodeId: node } : {} })],
      [0.5, () => this.#update(id)],
      [1, () => this.#get(id)],
      ...(this.#branches === null ? [] : [[12, () => this.#branch(id, rows)] as const]),
      ...(this.#hasOther ? [[1, () => this.#intrude(id)] as const] : []),
    ];
  }

  /** One of them, each as often as its weight says. */
  #choose(choices: readonly Choice[]): void {
    const sum = choices.reduce((total, [weight]) => total + weight, 0);
    let left = this.#cluster.world.random.between(0, sum);
    for (const [weight, request] of choices) {
      left -= weight;
      if (left <= 0) return request();
    }
  }

  /** The same of every machine, at the same time. */
  #all(): void {
    const request = this.#cluster.world.random.pick([
      "startMachine",
      "startMachine",
      "stopMachine",
      "moveMachine",
    ] as const);
    const rest = request === "moveMachine" ? { body: {} } : { query: {} };
    for (const id of this.#machines) this.#send(request, { params: { id }, ...rest });
  }

  uncordon(id: string): void {
    this.#send("uncordonNode", { params: { id } });
  }

  #create(): void {
    const { random } = this.#cluster.world;
    const env: Record<string, string> = { FAKE_BOOT_MS: String(random.below(random.pick([10, 10, 3_000]))) };
    if (random.happens(0.1)) env["FAKE_CRASH_AFTER_MS"] = String(random.below(10_000));
    if (random.happens(0.1)) env["FAKE_POWEROFF_AFTER_MS"] = String(random.below(10_000));
    const restart = random.pick(["always", "never"]);
    // One that is restarted would hang again, minutes later, for ever.
    if (restart === "never" && random.happens(0.2)) env["FAKE_HANG_AFTER_MS"] = String(random.below(10_000));
    if (random.happens(0.05)) env["FAKE_BOOT_FAIL"] = "1";
    if (random.happens(0.05)) env["FAKE_CONFIGURE_FAIL"] = "1";
    if (random.happens(0.1)) env["FAKE_SUSPEND_FAIL"] = random.pick(["no_space", "conflict"]);
    if (random.happens(0.1)) env["FAKE_RESUME_FAIL"] = "1";
    if (random.happens(0.2)) env["FAKE_SUSPEND_MS"] = String(random.below(3_000));
    if (random.happens(0.1)) env["FAKE_IGNORE_SHUTDOWN"] = "1";
    const reference = random.happens(0.2) ? `example/slow-${random.below(4_000)}` : "local/busybox";
    const body = {
      source: { type: "image", reference },
      resources: { cpus: random.pick(this.#cpus), memoryMb: 256, diskGb: 1 },
      env,
      restart,
      disruption: random.pick(["migrate", "restart", "stop"]),
      ephemeral: random.happens(0.1),
    };
    const isEphemeral = body.ephemeral;
    const source = isEphemeral ? null : (this.#branches?.drawSource() ?? null);
    Object.assign(env, source?.env);
    const caller = this.#anyCaller();
    const branchable = source === null ? {} : { branchable: true };
    this.#send("createMachine", { body: { ...body, ...branchable }, caller }, (reply) => {
      if (reply.kind !== "answer") return;
      const { id } = reply.body as { id: string };
      this.#owners.set(id, caller);
      this.#machines.push(id);
      this.created.add(id);
      if (source !== null) this.#branches?.add(id);
      if (RESTLESS.some((name) => env[name] !== undefined)) this.restless.add(id);
      if (isEphemeral) this.deletions.add(id);
      if (random.happens(0.6)) this.#send("startMachine", { params: { id }, query: {} });
    });
  }

  #branch(id: string, rows: Rows | null): void {
    const running = (rows?.machines ?? []).filter((machine) => !machine.isDeleted && phaseOf(machine) === "running");
    this.#branches?.branch(
      id,
      running.map((machine) => machine.id),
    );
  }

  /** The clones have what their source has. */
  #branched({ source, clones }: Branched): void {
    for (const id of clones) {
      this.#owners.set(id, this.#owners.get(source) ?? OPERATOR);
      if (!this.created.has(id)) this.#machines.push(id);
      this.created.add(id);
      if (this.restless.has(source)) this.restless.add(id);
    }
  }

  #delete(id: string): void {
    const { world } = this.#cluster;
    this.deletions.add(id);
    const at = this.#machines.indexOf(id);
    if (at >= 0 && world.random.happens(0.7)) this.#machines.splice(at, 1);
    this.#send("deleteMachine", { params: { id }, query: {} }, (reply) => {
      if (reply.kind === "answer") this.#deletedAt.set(id, world.now);
    });
  }

  #drain(id: string): void {
    const { random } = this.#cluster.world;
    this.#send("drainNode", { params: { id }, body: { deadlineSeconds: random.pick([0, 5, 30, 90]) } });
  }

  /** Cancels an operation that runs. */
  #cancel(rows: Rows | null): void {
    const running = (rows?.operations ?? []).filter(({ status }) => status === "running");
    if (running.length === 0) return;
    // There are more moves than drains.
    const { random } = this.#cluster.world;
    const drains = running.filter(({ kind }) => kind === "node drain");
    const { id } = random.pick(drains.length > 0 && random.happens(0.6) ? drains : running);
    this.#send("cancelOperation", { params: { id } });
  }

  #update(id: string): void {
    const disruption = this.#cluster.world.random.pick(["migrate", "restart", "stop"]);
    this.#send("updateMachine", { params: { id }, body: { disruption } });
  }

  #get(id: string): void {
    this.#send("getMachine", { params: { id } }, (reply) => {
      if (reply.kind === "refused" && reply.status === 404 && !this.deletions.has(id))
        this.#cluster.world.violate(`machine ${id} was not found, and no caller deleted it`);
    });
  }

  /**
   * A tenant calls for what another one owns, whose id it knows: it gets the answer for what does not exist.
   */
  #intrude(id: string): void {
    const { world } = this.#cluster;
    const caller = this.#owners.get(id) === OTHER ? OPERATOR : OTHER;
    const name = world.random.pick([
      "getMachine",
      "startMachine",
      "stopMachine",
      "deleteMachine",
      "updateMachine",
    ] as const);
    const body = name === "updateMachine" ? { body: { disruption: "stop" } } : {};
    this.#send(name, { params: { id }, query: {}, ...body, caller }, (reply) => {
      if (reply.kind === "answer" || (reply.kind === "refused" && reply.status !== 404 && reply.status < 500))
        world.violate(`${name} of machine ${id} was answered with ${reply.status} to a tenant that does not own it`);
    });
  }

  #getDeleted(): void {
    const { world } = this.#cluster;
    if (this.#deletedAt.size === 0) return;
    const [id, deletedAt] = world.random.pick([...this.#deletedAt]);
    const ms = world.now - deletedAt;
    this.#send("getMachine", { params: { id } }, (reply) => {
      if (reply.kind === "answer" && ms > STALE_MS_MAX)
        world.violate(`machine ${id} was found ${ms.toFixed()} ms after its deletion was acknowledged`);
    });
  }

  /** A list is never from memory. */
  #list(): void {
    const caller = this.#anyCaller();
    const isOwn = (id: string): boolean => this.#owners.get(id) === caller;
    const expected = [...this.created].filter((id) => isOwn(id) && !this.deletions.has(id));
    const gone = [...this.#deletedAt.keys()];
    this.#send("listMachines", { query: {}, caller }, (reply) => {
      if (reply.kind !== "answer") return;
      const found = new Set((reply.body as readonly { id: string }[]).map(({ id }) => id));
      const strange = [...found].find((id) => this.#owners.has(id) && !isOwn(id));
      if (strange !== undefined) this.#cluster.world.violate(`machine ${strange} is in the list of another tenant`);
      const missing = expected.find((id) => !found.has(id) && !this.deletions.has(id));
      if (missing !== undefined) this.#cluster.world.violate(`machine ${missing} is not in the list`);
      const left = gone.find((id) => found.has(id));
      if (left !== undefined) this.#cluster.world.violate(`machine ${left} is in the list after its deletion`);
    });
  }

  pool(): void {
    if (this.#pools.length >= POOLS_MAX) return;
    const { random } = this.#cluster.world;
    const size = { cpus: 1, memoryMb: 256, targetSize: 1 + random.below(2) };
    const body = { image: "local/busybox", ...size, ...(random.happens(0.3) ? { maxIdleSecs: 5 } : {}) };
    const caller = this.#anyCaller();
    this.#send("createPool", { body, caller }, (reply) => {
      if (reply.kind !== "answer") return;
      const { id } = reply.body as { id: string };
      this.#owners.set(id, caller);
      this.#pools.push(id);
    });
  }

  #claim(): void {
    const { random } = this.#cluster.world;
    if (this.#pools.length === 0) return;
    const pool = random.pick(this.#pools);
    // Callers claim at the same time.
    const count = random.happens(0.3) ? 2 : 1;
    for (let each = 0; each < count; each += 1) {
      const claim = { pool, claimId: this.#newMachineId(), caller: this.#owners.get(pool) ?? OPERATOR };
      this.#sendClaim(claim);
      // One that gets no answer sends it again, with its idempotency key, and may do so too early.
      if (random.happens(0.15)) this.#sendClaim(claim);
    }
  }

  #sendClaim(claim: Claim): void {
    const { world } = this.#cluster;
    const { pool, claimId, caller } = claim;
    this.#send("claimMachine", { params: { id: pool }, madeId: claimId, caller }, (reply) => {
      if (reply.kind === "answer") return this.#claimed(claim, (reply.body as { id: string }).id);
      const isOpen = reply.kind === "broken" || reply.status >= 500;
      if (isOpen && world.random.happens(0.7))
        world.after(world.random.between(100, 3_000), null, () => this.#sendClaim(claim));
    });
  }

  #claimed({ claimId, caller }: Claim, id: string): void {
    const { world } = this.#cluster;
    const before = this.#claims.get(claimId);
    if (before === id) return;
    // What is remembered of a claim ends with its machine; the answer that an idempotency key keeps is not
    // simulated.
    const isOver = before !== undefined && this.deletions.has(before);
    if (before !== undefined && !isOver)
      world.violate(`claim ${claimId} was answered with ${before}, and then with ${id}`);
    // A claim that came first may be answered after the use.
    if (this.created.has(id) && !this.#cluster.replacing.used.has(id)) world.violate(`machine ${id} was claimed twice`);
    if (this.#cluster.replacing.replaced.has(id)) world.violate(`machine ${id} was replaced, and is given to a caller`);
    this.#claims.set(claimId, id);
    this.#owners.set(id, caller);
    if (!this.created.has(id)) this.#machines.push(id);
    this.created.add(id);
  }

  /** Its owner uses a machine that waits in a pool, without a claim. */
  #useWaiting(rows: Rows | null): void {
    const waiting = (rows?.machines ?? []).filter(({ isInPool, isDeleted }) => isInPool && !isDeleted);
    if (waiting.length === 0) return;
    const { id, tenantId } = this.#cluster.world.random.pick(waiting);
    const caller = tenantId === OTHER.tenantId ? OTHER : OPERATOR;
    this.#send("createSession", { params: { id }, caller }, (reply) => {
      if (reply.kind !== "answer") return;
      this.#cluster.replacing.use(id);
      this.#owners.set(id, caller);
      if (this.created.has(id)) return;
      this.created.add(id);
      this.#machines.push(id);
    });
  }

  #anyCaller(): Caller {
    return this.#hasOther && this.#cluster.world.random.happens(OTHERS) ? OTHER : OPERATOR;
  }

  #newMachineId(): string {
    return randomIds((size) => this.#cluster.world.ids.bytes(size)).make("machine");
  }

  #deletePool(): void {
    if (this.#pools.length === 0) return;
    const [id] = this.#pools.splice(this.#cluster.world.random.below(this.#pools.length), 1);
    this.#send("deletePool", { params: { id: id as string } });
  }

  /** An operator decides it, of one node or of all. */
  #replaceLost(): void {
    const { random } = this.#cluster.world;
    const body = random.happens(0.5) ? {} : { nodeIds: [random.pick(this.#cluster.nodes).name] };
    this.#send("replaceLostNodes", { body });
  }

  #operatorsOf({ program }: SimulatedServer): number {
    return this.#cluster.operators.get(program) ?? 0;
  }

  /** Sends a call to a server that lives. Its answer arrives by itself. */
  #send(name: EndpointName, { caller, ...call }: Call, onReply?: (reply: Reply) => void): void {
    const { world, liveServers } = this.#cluster;
    if (liveServers.length === 0) return;
    const server: SimulatedServer = world.random.pick(liveServers);
    this.calls.set(name, (this.calls.get(name) ?? 0) + 1);
    const { id = "" } = (call.params ?? {}) as { readonly id?: string };
    const as = caller ?? this.#owners.get(id) ?? OPERATOR;
    world.note(`${name} ${JSON.stringify(call)} of ${as.tenantId} at ${server.program.name}`);
    this.open += 1;
    const isReplacing = name === "replaceLostNodes";
    if (isReplacing) this.#cluster.operators.set(server.program, this.#operatorsOf(server) + 1);
    void server.call(name, { ...call, caller: as }).then((reply) => {
      this.open -= 1;
      // A statement of one that died may have its effect later.
      if (isReplacing && reply.kind !== "broken")
        this.#cluster.operators.set(server.program, this.#operatorsOf(server) - 1);
      const text = reply.kind === "refused" ? ` ${reply.status} ${reply.text}` : "";
      world.note(`${name} ${JSON.stringify(call.params ?? {})} → ${reply.kind}${text}`);
      onReply?.(reply);
    });
  }
}

/**
 * What users request of apps in a simulated cluster.
 */
import type { EndpointName } from "@flotilla/contract/endpoints";
import type { Caller } from "../../server/src/auth/caller.ts";
import type { Cluster } from "./cluster.ts";
import type { Reply } from "./server.ts";

const NAMES = ["one", "two"] as const;
const COUNT_MAX = 2;
/** How long a request may be open at an instance. */
const OPEN_MS_MAX = 6_000;

interface Call {
  readonly caller: Caller;
  readonly params?: object;
  readonly body?: unknown;
}

export type Send = (name: EndpointName, call: Call, onReply?: (reply: Reply) => void) => void;

export class AppRequests {
  readonly #cluster: Cluster;
  readonly #send: Send;
  readonly #caller: Caller;
  /** Ids of apps that were deployed, by their names. */
  readonly #ids = new Map<string, string>();

  constructor(cluster: Cluster, caller: Caller, send: Send) {
    this.#cluster = cluster;
    this.#caller = caller;
    this.#send = send;
  }

  /** Each with how often it is chosen. */
  get choices(): readonly (readonly [number, () => void])[] {
    const { random } = this.#cluster.world;
    const name = random.pick(NAMES);
    if (!this.#ids.has(name)) return [[6, () => this.#deploy(name)]];
    return [
      [4, () => this.#deploy(name)],
      [2, () => this.#change("scaleApp", name, { count: random.below(COUNT_MAX + 1) })],
      [2, () => this.#change("promoteApp", name)],
      [1, () => this.#change("redeployApp", name)],
      [1, () => this.#change("rollbackApp", name)],
      [0.5, () => this.#change("destroyApp", name)],
      [6, () => this.#ask(name)],
    ];
  }

  #deploy(name: string): void {
    const { random } = this.#cluster.world;
    const env = [{ key: "VERSION", value: String(random.below(4)) }];
    // Without it nothing listens, and the release is rolled back.
    if (random.happens(0.9)) env.push({ key: "FAKE_LISTEN", value: "8080=200" });
    if (random.happens(0.05)) env.push({ key: "FAKE_BOOT_FAIL", value: "1" });
    env.push({ key: "FAKE_BOOT_MS", value: String(random.below(random.pick([10, 3_000]))) });
    const strategy = random.pick([
      { type: "rolling" },
      { type: "rolling", useHealthCheck: false, waitSeconds: 2 },
      { type: "canary" },
      { type: "canary", autoPromote: false },
      { type: "blueGreen" },
    ]);
    const size = { replicas: 1 + random.below(COUNT_MAX), cpus: 1, memoryMb: 256 };
    const health = random.happens(0.4) ? { health: { type: "tcp", intervalSecs: 1, timeoutSecs: 1, retries: 2 } } : {};
    const deadlines = random.happens(0.3) ? { placingDeadlineSecs: 5, healthDeadlineSecs: 5 } : {};
    const body = { name, image: "local/busybox", env, strategy, stopGraceSecs: 2, ...size, ...health, ...deadlines };
    this.#send("deployApp", { body, caller: this.#caller }, (reply) => {
      if (reply.kind === "answer") this.#ids.set(name, (reply.body as { id: string }).id);
    });
  }

  #change(endpoint: EndpointName, name: string, body?: object): void {
    this.#send(endpoint, { params: { name }, caller: this.#caller, ...(body === undefined ? {} : { body }) });
  }

  /** A request for the app comes to an ingress, and is open at an instance for a while. */
  #ask(name: string): void {
    const { world, liveServers } = this.#cluster;
    const id = this.#ids.get(name);
    if (id === undefined || liveServers.length === 0) return;
    const server = world.random.pick(liveServers);
    const chosen = server.chooseInstance(id);
    if (chosen === null) return;
    const release = chosen.request.hold();
    world.after(world.random.between(0, OPEN_MS_MAX), server.program, release);
  }
}

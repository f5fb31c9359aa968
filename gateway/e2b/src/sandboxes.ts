/**
 * What callers do with sandboxes, as calls of the API with their key.
 *
 * Always:
 * - A sandbox that could not be made, or whose caller has gone meanwhile, is deleted again; if that fails,
 *   its time ends it.
 * - A running sandbox ends with its time, by the server where no gateway does it: it is deleted, or paused if
 *   it was made so. A paused one has no end. A crash in the middle of a pause leaves the end of before.
 */
import { randomBytes } from "node:crypto";
import { ownMessageOf } from "@flotilla/base/errors";
import type { Clock } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";
import { Flotilla, FlotillaError, type MachineInfo, type UpdateMachineRequest } from "@flotilla/sdk";
import type { Bridge } from "./bridge.ts";
import { environmentOf, startHelper } from "./guest-service.ts";
import { machineOf, sandboxOf } from "./ids.ts";
import { isOver, type Known, type KnownSandboxes } from "./known.ts";
import type { OwnImages } from "./own-images.ts";
import type { Remembered } from "./remembered.ts";
import { atEndOf, endOf, type Facts, factsOf, labelsOf, type SandboxAccess, stateOf, ttlUntil } from "./record.ts";
import { isImageMissing, notFound, Refused } from "./refused.ts";
import type { NewSandbox } from "./request-shape.ts";
import { ENVD_PORT, FILES_PORT } from "./route.ts";
import { imageOf, kindOf } from "./templates.ts";
import type { Tokens } from "./tokens.ts";

/** The time that a sandbox gets when a visitor wakes it. */
const WOKEN_MS = 300_000;
/** A shorter time begins when the sandbox has started: the start might take all of it. */
const STARTING_SECONDS = 60;
const PAGE = 500;
const SEED_BYTES = 16;

export interface SandboxParts {
  /** The server's address. */
  readonly url: string;
  readonly tokens: Tokens;
  readonly known: KnownSandboxes;
  readonly remembered: Remembered;
  readonly bridge: Bridge;
  /** The images of E2B's own templates. */
  readonly images: OwnImages;
  /** The domain below which ports of sandboxes have their hosts. */
  readonly domain: string;
  readonly clock: Clock;
  readonly log: Log;
}

/** Why the service in a machine does not answer. */
interface Unanswered {
  readonly status: number;
  /** The server's, such as `guest_unreachable`. */
  readonly code: string;
}

/** A machine that is a sandbox. */
export interface Sandbox {
  readonly machine: MachineInfo;
  readonly facts: Facts;
}

export class Sandboxes {
  readonly #parts: SandboxParts;
  readonly #helpers = new Map<string, Promise<void>>();
  readonly #waking = new Map<string, Promise<void>>();

  constructor(parts: SandboxParts) {
    this.#parts = parts;
  }

  /** `hasGone`: whether the caller has left, so that what is made would have no user. */
  async create(key: string, request: NewSandbox, hasGone: () => boolean): Promise<Sandbox> {
    try {
      return await this.#create(key, request, hasGone);
    } catch (error) {
      const kind = kindOf(request.template);
      if (kind === null || !isImageMissing(error)) throw error;
      await this.#parts.images.require(kind, key);
      return await this.#create(key, request, hasGone);
    }
  }

  async #create(key: string, request: NewSandbox, hasGone: () => boolean): Promise<Sandbox> {
    const { clock } = this.#parts;
    const flotilla = this.#flotilla(key);
    const facts: Facts = {
      ...factsOfRequest(request),
      seed: randomBytes(SEED_BYTES).toString("hex"),
      hasInternet: request.network.mode === "open",
    };
    const { mode, cidrs, hosts } = request.network;
    const isShort = request.timeoutSeconds < STARTING_SECONDS;
    const machine = await flotilla.createMachine({
      source: { type: "image", reference: imageOf(request.template) },
      network: { mode, ...(cidrs === undefined ? {} : { cidrs }), ...(hosts === undefined ? {} : { hosts }) },
      env: request.env,
      labels: labelsOf(facts),
      ports: [{ port: ENVD_PORT }, { port: FILES_PORT }],
      ttlSeconds: request.timeoutSeconds + (isShort ? STARTING_SECONDS : 0),
      atEnd: atEndOf(facts),
    });
    try {
      await this.#startHelper(key, { machine, facts }, ENVD_PORT);
      if (hasGone()) throw new Refused(499, "the caller has gone");
    } catch (error) {
      await flotilla.deleteMachine(machine.id).catch((failed: unknown) => this.#report(machine.id, failed));
      throw error;
    }
    const made: Sandbox = { machine: { ...machine, state: "started" }, facts };
    this.#learn(key, made).helpers = new Set([ENVD_PORT]);
    if (!isShort) return made;
    return await this.setEnd(key, made, { endAt: clock.now() + request.timeoutSeconds * 1000, isLonger: false });
  }

  /** Throws a Refused when there is none, or its time is over. */
  async find(key: string, sandboxId: string): Promise<Sandbox> {
    const { clock } = this.#parts;
    const machine = await this.#flotilla(key).getMachine(machineOf(sandboxId)).catch(missing(sandboxId));
    const facts = factsOf(machine);
    if (facts === null) throw notFound(sandboxId);
    const learnt = this.#learn(key, { machine, facts });
    if (!isOver(learnt, clock.now())) return { machine, facts };
    if (!facts.pausesAtEnd) throw notFound(sandboxId);
    return { machine: { ...machine, state: "stopped" }, facts };
  }

  /** All of the caller's, newest first, in any state. */
  async list(key: string): Promise<readonly Sandbox[]> {
    const found: Sandbox[] = [];
    const flotilla = this.#flotilla(key);
    let cursor: string | undefined;
    do {
      let next: string | undefined;
      const machines = await flotilla.listMachines({
        query: { label: ["e2b=sandbox"], limit: PAGE, ...(cursor === undefined ? {} : { cursor }) },
        onHeaders: (headers) => {
          next = /[?&]cursor=([^&>]+)/.exec(headers.get("link") ?? "")?.[1];
        },
      });
      const now = this.#parts.clock.now();
      for (const machine of machines) {
        const facts = factsOf(machine);
        const end = endOf(machine);
        if (facts === null || (end !== null && end <= now && !facts.pausesAtEnd)) continue;
        found.push({ machine, facts });
      }
      cursor = next === undefined ? undefined : decodeURIComponent(next);
    } while (cursor !== undefined);
    return found;
  }

  /** Its time ends then. `isLonger`: unless it would end earlier than before. */
  async setEnd(
    key: string,
    sandbox: Sandbox,
    { endAt, isLonger }: { endAt: number; isLonger: boolean },
  ): Promise<Sandbox> {
    const before = endOf(sandbox.machine);
    if (isLonger && before !== null && before >= endAt) return sandbox;
    return await this.#update(key, sandbox, { ttlSeconds: ttlUntil(sandbox.machine, endAt) });
  }

  /** It is what the request says from now on, and ends as that says. */
  async become(key: string, { machine, facts }: Sandbox, request: NewSandbox): Promise<Sandbox> {
    const changed: Facts = { ...facts, ...factsOfRequest(request) };
    const ttlSeconds = ttlUntil(machine, this.#parts.clock.now() + request.timeoutSeconds * 1000);
    const change = { ttlSeconds, atEnd: atEndOf(changed), labels: labelsOf(changed) };
    return await this.#update(key, { machine, facts: changed }, change);
  }

  async #update(key: string, { machine, facts }: Sandbox, change: UpdateMachineRequest): Promise<Sandbox> {
    const updated: Sandbox = { machine: await this.#flotilla(key).updateMachine(machine.id, change), facts };
    this.#learn(key, updated);
    return updated;
  }

  async kill(key: string, sandboxId: string): Promise<void> {
    await this.find(key, sandboxId);
    await this.#flotilla(key).deleteMachine(machineOf(sandboxId)).catch(missing(sandboxId));
    this.#parts.known.forget(sandboxId);
    this.#parts.remembered.forget(sandboxId);
  }

  async pause(key: string, sandbox: Sandbox, { keepsMemory }: { readonly keepsMemory: boolean }): Promise<void> {
    const { machine, facts } = sandbox;
    if (stateOf(machine) === "paused") throw new Refused(409, `Sandbox "${sandboxOf(machine.id)}" is paused already`);
    const flotilla = this.#flotilla(key);
    await flotilla.stopMachine(machine.id, { query: { keepMemory: keepsMemory } });
    const paused = await flotilla.updateMachine(machine.id, { ttlSeconds: 0 });
    this.#learn(key, { machine: paused, facts });
  }

  /** Continues a paused sandbox until then. */
  async resume(key: string, { machine, facts }: Sandbox, endAt: number): Promise<Sandbox> {
    const flotilla = this.#flotilla(key);
    await flotilla.updateMachine(machine.id, { ttlSeconds: ttlUntil(machine, endAt) });
    const running = await flotilla.startMachine(machine.id);
    const known = this.#learn(key, { machine: running, facts });
    await this.requireHelper(known, ENVD_PORT);
    return { machine: running, facts };
  }

  /** Resumes a sandbox that a visitor may wake, unless it runs. Visitors at the same time share that. */
  wake({ sandboxId, key }: Known): Promise<void> {
    const begun = this.#waking.get(sandboxId);
    if (begun !== undefined) return begun;
    const waking = this.#wake(key, sandboxId).finally(() => this.#waking.delete(sandboxId));
    this.#waking.set(sandboxId, waking);
    return waking;
  }

  async #wake(key: string, sandboxId: string): Promise<void> {
    const found = await this.find(key, sandboxId);
    if (stateOf(found.machine) === "paused") await this.resume(key, found, this.#parts.clock.now() + WOKEN_MS);
  }

  /**
   * The helper at that port of a machine that runs answers afterwards. Throws a Refused with 502 when it does
   * not run.
   */
  requireHelper(known: Known, port: number): Promise<void> {
    if (known.helpers.has(port)) return Promise.resolve();
    const name = `${known.sandboxId}:${port}`;
    const begun = this.#helpers.get(name);
    if (begun !== undefined) return begun;
    const starting = this.#findHelper(known, port).finally(() => this.#helpers.delete(name));
    this.#helpers.set(name, starting);
    return starting;
  }

  access({ key, sandbox }: { readonly key: string; readonly sandbox: Sandbox }): SandboxAccess {
    const { tokens, domain } = this.#parts;
    const sandboxId = sandboxOf(sandbox.machine.id);
    const trafficToken = sandbox.facts.isPublic ? null : tokens.ofTraffic(sandboxId);
    return { token: tokens.seal({ key, sandboxId }), trafficToken, domain };
  }

  /** Ends a sandbox whose time is over. */
  async end({ sandboxId, key, facts }: Known): Promise<void> {
    const { clock, known } = this.#parts;
    const flotilla = this.#flotilla(key);
    const machine = await flotilla.getMachine(machineOf(sandboxId));
    const end = endOf(machine);
    // Another gateway may have given it more time.
    if (end === null || end > clock.now()) return void this.#learn(key, { machine, facts });
    if (facts.pausesAtEnd) return await this.#pauseAtEnd(key, { machine, facts });
    await flotilla.deleteMachine(machine.id);
    known.forget(sandboxId);
  }

  /** The server does the same a little later, so it may have done it. */
  async #pauseAtEnd(key: string, sandbox: Sandbox): Promise<void> {
    if (stateOf(sandbox.machine) === "paused") return void this.#learn(key, sandbox);
    await this.pause(key, sandbox, { keepsMemory: sandbox.facts.keepsMemory });
  }

  flotilla(key: string): Flotilla {
    return this.#flotilla(key);
  }

  #flotilla(key: string): Flotilla {
    return new Flotilla({ url: this.#parts.url, apiKey: key });
  }

  #learn(key: string, sandbox: Sandbox): Known {
    this.#parts.remembered.remember(sandboxOf(sandbox.machine.id), key);
    return this.#parts.known.learn(sandbox.machine, sandbox.facts, key);
  }

  async #findHelper(known: Known, port: number): Promise<void> {
    const { key, sandboxId, facts } = known;
    const found = await this.#askHelper(known, port);
    if (found !== "answers") {
      if (found.code !== "guest_unreachable") throw new Refused(found.status, found.code);
      const machine = await this.#flotilla(key).getMachine(machineOf(sandboxId));
      await this.#startHelper(key, { machine, facts }, port);
    }
    known.helpers = new Set([...known.helpers, port]);
  }

  async #askHelper(
    { key, sandboxId, facts }: Pick<Known, "key" | "sandboxId" | "facts">,
    port: number,
  ): Promise<"answers" | Unanswered> {
    const { bridge, tokens } = this.#parts;
    const headers = { "x-flotilla-token": tokens.ofHelper(facts.seed) };
    const call = { key, sandboxId, port, method: "GET", path: "/health", headers, body: null };
    const { message } = await bridge.call(call);
    message.resume();
    const code = message.headers["x-error-code"] ?? "no service";
    return message.statusCode === 204 ? "answers" : { status: message.statusCode ?? 502, code: String(code) };
  }

  async #startHelper(key: string, { machine, facts }: Sandbox, port: number): Promise<void> {
    const sandboxId = sandboxOf(machine.id);
    const environment = { ...environmentOf(sandboxId, facts), ...machine.env };
    const token = this.#parts.tokens.ofHelper(facts.seed);
    try {
      await startHelper({ flotilla: this.#flotilla(key), sandboxId, port, token, facts, environment });
    } catch (error) {
      // An image may bring the service itself.
      const isAnswered =
        error instanceof Refused && (await this.#askHelper({ key, sandboxId, facts }, port)) === "answers";
      if (!isAnswered) throw error;
    }
  }

  #report(machineId: string, error: unknown): void {
    this.#parts.log.warn({ machineId, reason: ownMessageOf(error) }, "a sandbox that failed could not be deleted");
  }
}

/** What of a sandbox its request decides alone. */
function factsOfRequest(request: NewSandbox): Omit<Facts, "seed" | "hasInternet"> {
  const { template, metadata, pausesAtEnd, keepsMemory, resumesByTraffic, isPublic, hostMask } = request;
  return { template, metadata, pausesAtEnd, keepsMemory, resumesByTraffic, isPublic, hostMask };
}

function missing(sandboxId: string): (error: unknown) => never {
  return (error) => {
    throw error instanceof FlotillaError && error.code === "not_found" ? notFound(sandboxId) : error;
  };
}

/**
 * What callers do with sandboxes, as calls of the API with their key.
 *
 * Always:
 * - A sandbox that could not be made, or whose caller has gone meanwhile, is deleted again; if that fails,
 *   its time ends it.
 * - The end of a paused sandbox is far away, and of a running one never later than its time. A pause writes
 *   first that it is paused: a crash in between deletes the sandbox at its end, and keeps nothing alive.
 */
import { randomBytes } from "node:crypto";
import { ownMessageOf } from "@flotilla/base/errors";
import type { Clock } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";
import { Flotilla, FlotillaError, type MachineInfo } from "@flotilla/sdk";
import type { Bridge } from "./bridge.ts";
import { environmentOf, startHelper } from "./guest-service.ts";
import { machineOf, sandboxOf } from "./ids.ts";
import { isOver, type Known, type KnownSandboxes } from "./known.ts";
import type { OwnImages } from "./own-images.ts";
import { endOf, type Facts, factsOf, labelsOf, type SandboxAccess, stateOf, ttlUntil } from "./record.ts";
import { isImageMissing, notFound, Refused } from "./refused.ts";
import type { NewSandbox } from "./request-shape.ts";
import { ENVD_PORT } from "./route.ts";
import { imageOf, kindOf } from "./templates.ts";
import type { Tokens } from "./tokens.ts";

/** A sandbox that pauses at its end is deleted this long after it when no gateway has paused it. */
const PAUSE_LATE_SECONDS = 24 * 3600;
const PAGE = 500;
const SEED_BYTES = 16;

export interface SandboxParts {
  /** The server's address. */
  readonly url: string;
  readonly tokens: Tokens;
  readonly known: KnownSandboxes;
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
    const flotilla = this.#flotilla(key);
    const { template, metadata, pausesAtEnd, resumesByTraffic, isPublic } = request;
    const facts: Facts = {
      ...{ template, metadata, pausesAtEnd, resumesByTraffic, isPublic },
      seed: randomBytes(SEED_BYTES).toString("hex"),
      hasInternet: request.network.mode === "open",
    };
    const { mode, cidrs, hosts } = request.network;
    const machine = await flotilla.createMachine({
      source: { type: "image", reference: imageOf(template) },
      network: { mode, ...(cidrs === undefined ? {} : { cidrs }), ...(hosts === undefined ? {} : { hosts }) },
      env: request.env,
      labels: labelsOf(facts),
      ports: [{ port: ENVD_PORT }],
      ttlSeconds: request.timeoutSeconds + lateOf(facts),
    });
    try {
      await this.#startHelper(key, { machine, facts });
      if (hasGone()) throw new Refused(499, "the caller has gone");
    } catch (error) {
      await flotilla.deleteMachine(machine.id).catch((failed: unknown) => this.#report(machine.id, failed));
      throw error;
    }
    this.#learn(key, { machine: { ...machine, state: "started" }, facts }).hasHelper = true;
    return { machine, facts };
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
        const end = facts === null ? null : endAtOf({ machine, facts });
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
    const before = endAtOf(sandbox);
    if (isLonger && before !== null && before >= endAt) return sandbox;
    const ttlSeconds = ttlUntil(sandbox.machine, endAt) + lateOf(sandbox.facts);
    const machine = await this.#flotilla(key).updateMachine(sandbox.machine.id, { ttlSeconds });
    this.#learn(key, { machine, facts: sandbox.facts });
    return { machine, facts: sandbox.facts };
  }

  async kill(key: string, sandboxId: string): Promise<void> {
    await this.find(key, sandboxId);
    await this.#flotilla(key).deleteMachine(machineOf(sandboxId)).catch(missing(sandboxId));
    this.#parts.known.forget(sandboxId);
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
    await flotilla.updateMachine(machine.id, { ttlSeconds: ttlUntil(machine, endAt) + lateOf(facts) });
    const running = await flotilla.startMachine(machine.id);
    const known = this.#learn(key, { machine: running, facts });
    await this.requireHelper(known);
    return { machine: running, facts };
  }

  /** The helper of a machine that runs answers afterwards. Throws a Refused with 502 when it does not run. */
  requireHelper(known: Known): Promise<void> {
    if (known.hasHelper) return Promise.resolve();
    const { sandboxId } = known;
    const begun = this.#helpers.get(sandboxId);
    if (begun !== undefined) return begun;
    const starting = this.#findHelper(known).finally(() => this.#helpers.delete(sandboxId));
    this.#helpers.set(sandboxId, starting);
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
    const end = endAtOf({ machine, facts });
    // Another gateway may have given it more time.
    if (end === null || end > clock.now()) return void this.#learn(key, { machine, facts });
    if (facts.pausesAtEnd) return await this.pause(key, { machine, facts }, { keepsMemory: true });
    await flotilla.deleteMachine(machine.id);
    known.forget(sandboxId);
  }

  flotilla(key: string): Flotilla {
    return this.#flotilla(key);
  }

  #flotilla(key: string): Flotilla {
    return new Flotilla({ url: this.#parts.url, apiKey: key });
  }

  #learn(key: string, sandbox: Sandbox): Known {
    const endAt = endAtOf(sandbox);
    const ttlSeconds = endAt === null ? null : ttlUntil(sandbox.machine, endAt);
    return this.#parts.known.learn({ ...sandbox.machine, ttlSeconds }, sandbox.facts, key);
  }

  async #findHelper(known: Known): Promise<void> {
    const { key, sandboxId, facts } = known;
    const found = await this.#askHelper(known);
    if (found !== "answers") {
      if (found.code !== "guest_unreachable") throw new Refused(found.status, found.code);
      const machine = await this.#flotilla(key).getMachine(machineOf(sandboxId));
      await this.#startHelper(key, { machine, facts });
    }
    known.hasHelper = true;
  }

  async #askHelper({
    key,
    sandboxId,
    facts,
  }: Pick<Known, "key" | "sandboxId" | "facts">): Promise<"answers" | Unanswered> {
    const { bridge, tokens } = this.#parts;
    const headers = { "x-flotilla-token": tokens.ofHelper(facts.seed) };
    const { message } = await bridge.call({ key, sandboxId, method: "GET", path: "/health", headers, body: null });
    message.resume();
    const code = message.headers["x-error-code"] ?? "no service";
    return message.statusCode === 204 ? "answers" : { status: message.statusCode ?? 502, code: String(code) };
  }

  async #startHelper(key: string, { machine, facts }: Sandbox): Promise<void> {
    const sandboxId = sandboxOf(machine.id);
    const environment = { ...environmentOf(sandboxId, facts), ...machine.env };
    const token = this.#parts.tokens.ofHelper(facts.seed);
    try {
      await startHelper({ flotilla: this.#flotilla(key), sandboxId, token, facts, environment });
    } catch (error) {
      // An image may bring the service itself.
      if (!(error instanceof Refused) || (await this.#askHelper({ key, sandboxId, facts })) !== "answers") throw error;
    }
  }

  #report(machineId: string, error: unknown): void {
    this.#parts.log.warn({ machineId, reason: ownMessageOf(error) }, "a sandbox that failed could not be deleted");
  }
}

/** Epoch milliseconds; null: it does not end by itself. */
function endAtOf({ machine, facts }: Sandbox): number | null {
  const end = endOf(machine);
  return end === null ? null : end - lateOf(facts) * 1000;
}

const lateOf = ({ pausesAtEnd }: Facts): number => (pausesAtEnd ? PAUSE_LATE_SECONDS : 0);

function missing(sandboxId: string): (error: unknown) => never {
  return (error) => {
    throw error instanceof FlotillaError && error.code === "not_found" ? notFound(sandboxId) : error;
  };
}

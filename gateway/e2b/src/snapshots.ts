/**
 * Forks and snapshots of sandboxes: branches and checkpoints of their machines.
 *
 * Always: a fork has the metadata, the variables and the helper of its source, and its own time. A sandbox
 * from a snapshot is what its request says, with the variables of both; its network is that of the source.
 */
import { randomBytes } from "node:crypto";
import type { Clock } from "@flotilla/base/clock";
import { type CheckpointInfo, FlotillaError, type MachineInfo } from "@flotilla/sdk";
import type { EnvdCalls } from "./envd.ts";
import { sandboxOf } from "./ids.ts";
import { factsOf } from "./record.ts";
import { notImplemented, Refused } from "./refused.ts";
import type { Fields } from "./fields.ts";
import { type NewSandbox, timeoutOf } from "./request-shape.ts";
import type { Sandbox, Sandboxes } from "./sandboxes.ts";

const FORKS_MAX = 64;
const FORK_SECONDS = 300;
const PREFIX_BYTES = 6;
const SNAPSHOT = /^ckpt-[0-9a-f]{32}$/;

interface ForkRequest {
  readonly count: number;
  readonly timeoutSeconds: number;
}

/** Throws a Refused. */
export function forkOf(body: Fields): ForkRequest {
  const count = body["count"] ?? 1;
  if (typeof count !== "number" || !Number.isInteger(count) || count < 1 || count > FORKS_MAX)
    throw new Refused(400, `count is not a number from 1 to ${FORKS_MAX}`);
  return { count, timeoutSeconds: timeoutOf(body["timeout"], FORK_SECONDS) };
}

export interface SnapshotParts {
  readonly sandboxes: Sandboxes;
  readonly envd: EnvdCalls;
  readonly clock: Clock;
}

export class Snapshots {
  readonly #parts: SnapshotParts;

  constructor(parts: SnapshotParts) {
    this.#parts = parts;
  }

  async fork(key: string, { machine, facts }: Sandbox, request: ForkRequest): Promise<readonly Sandbox[]> {
    const flotilla = this.#parts.sandboxes.flotilla(key);
    await flotilla.startMachine(machine.id, { query: { forkable: true } });
    const { clones } = await flotilla.createBranches(machine.id, {
      count: request.count,
      namePrefix: prefixOf("fork"),
    });
    return await this.#made(key, clones, { template: facts.template, timeoutSeconds: request.timeoutSeconds });
  }

  async create(key: string, { machine }: Sandbox, name: string | null): Promise<object> {
    const flotilla = this.#parts.sandboxes.flotilla(key);
    if (machine.state === "started") await flotilla.startMachine(machine.id, { query: { forkable: true } });
    return viewOf(await flotilla.createCheckpoint(machine.id, name === null ? {} : { name }));
  }

  async list(key: string, query: URLSearchParams): Promise<readonly object[]> {
    const all = await this.#parts.sandboxes.flotilla(key).listCheckpoints();
    const [sandboxId, name] = [query.get("sandboxID"), query.get("name")];
    return all
      .filter((each) => sandboxId === null || sandboxOf(each.machineId) === sandboxId)
      .filter((each) => name === null || each.name === name)
      .map(viewOf);
  }

  async delete(key: string, id: string): Promise<void> {
    const found = await this.find(key, id);
    if (found === null) throw new Refused(404, `snapshot "${id}" doesn't exist`);
    await this.#parts.sandboxes.flotilla(key).deleteCheckpoint(found.id);
  }

  /** null: the template is not a snapshot. */
  async find(key: string, template: string): Promise<CheckpointInfo | null> {
    const id = template.replace(/:default$/, "");
    if (!SNAPSHOT.test(id)) return null;
    try {
      return await this.#parts.sandboxes.flotilla(key).getCheckpoint(id);
    } catch (error) {
      if (error instanceof FlotillaError && error.code === "not_found") return null;
      throw error;
    }
  }

  async start(key: string, snapshot: CheckpointInfo, request: NewSandbox): Promise<Sandbox> {
    if (request.network.mode !== "open") throw notImplemented("network of a sandbox from a snapshot");
    const flotilla = this.#parts.sandboxes.flotilla(key);
    const { clones } = await flotilla.branchCheckpoint(snapshot.id, { count: 1, namePrefix: prefixOf("snapshot") });
    const { template, timeoutSeconds } = request;
    const [made] = await this.#made(key, clones, { template, timeoutSeconds });
    if (made === undefined) throw new Refused(500, "the snapshot made no sandbox");
    if (Object.keys(request.env).length > 0)
      await this.#parts.envd.setEnvironment(key, sandboxOf(made.machine.id), request.env);
    return await this.#parts.sandboxes.become(key, made, request);
  }

  async #made(
    key: string,
    clones: readonly MachineInfo[],
    { template, timeoutSeconds }: { readonly template: string; readonly timeoutSeconds: number },
  ): Promise<readonly Sandbox[]> {
    const { sandboxes, envd, clock } = this.#parts;
    const endAt = clock.now() + timeoutSeconds * 1000;
    return await Promise.all(
      clones.map(async (machine) => {
        const facts = factsOf(machine);
        if (facts === null) throw new Refused(400, `"${template}" is not of a sandbox`);
        const sandbox = await sandboxes.setEnd(key, { machine, facts }, { endAt, isLonger: false });
        const sandboxId = sandboxOf(machine.id);
        await envd.setEnvironment(key, sandboxId, { E2B_SANDBOX_ID: sandboxId });
        return sandbox;
      }),
    );
  }
}

/** The names of a tenant's machines differ, and a sandbox may be forked again. */
const prefixOf = (kind: string): string => `${kind}-${randomBytes(PREFIX_BYTES).toString("hex")}`;

const viewOf = ({ id, name }: CheckpointInfo) => ({ snapshotID: id, names: name === null ? [] : [name] });

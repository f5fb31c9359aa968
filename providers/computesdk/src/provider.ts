/**
 * Machines of Flotilla as sandboxes of ComputeSDK: `flotilla({ url, apiKey })` is a provider for `compute`.
 *
 * Always:
 * - A sandbox that could not be started is deleted again. Each is made with an idempotency key, so that a
 *   lost answer leaves no second one behind.
 * - A sandbox ends with its timeout at the latest, also when the program that made it has ended.
 * - Only machines with the label `computesdk` are listed; any machine of the caller is found by its id.
 */
import {
  type CommandResult,
  type CreateSandboxOptions,
  type CreateSnapshotOptions,
  defineProvider,
  type FileEntry,
  type ListSnapshotsOptions,
  type RunCommandOptions,
  type SandboxInfo,
} from "@computesdk/provider";
import {
  type CheckpointInfo,
  type FileEntry as ListedFile,
  Flotilla,
  FlotillaError,
  items,
  type ListMachinesQuery,
  type MachineInfo,
} from "@flotilla/sdk";
import { now } from "@flotilla/sdk/clock";
import { collect } from "./output.ts";
import { type FlotillaConfig, machineRequestOf, SANDBOX_LABEL } from "./request.ts";

export type { FlotillaConfig } from "./request.ts";

/** What ComputeSDK gives as the native instance of a sandbox. */
export interface FlotillaSandbox {
  readonly flotilla: Flotilla;
  /** As it was when the sandbox was made or found. */
  readonly machine: MachineInfo;
}

/** A checkpoint of a machine. */
export interface FlotillaSnapshot {
  readonly id: string;
  readonly provider: "flotilla";
  readonly createdAt: Date;
  readonly metadata: { readonly machineId: string; readonly name: string | null; readonly status: string };
}

interface Made {
  readonly sandbox: FlotillaSandbox;
  readonly sandboxId: string;
}

/** The provider: `compute.setConfig({ provider: flotilla({ url, apiKey }) })`. */
export const flotilla = defineProvider<FlotillaSandbox, FlotillaConfig, never, FlotillaSnapshot>({
  name: "flotilla",
  methods: {
    sandbox: {
      create: (config, options = {}) => create(clientOf(config), config, options),
      getById: (config, id) => find(clientOf(config), id),
      list: (config) => list(clientOf(config)),
      destroy: (config, id) => destroy(clientOf(config), id),
      runCommand: (sandbox, command, options = {}) => runCommand(sandbox, command, options),
      streamCommand: (sandbox, command, options) => runCommand(sandbox, command, options),
      getInfo: async ({ flotilla: client, machine }) => infoOf(await client.getMachine(machine.id)),
      getUrl: urlOf,
      getInstance: (sandbox) => sandbox,
      filesystem: {
        readFile: async ({ flotilla: client, machine }, path) =>
          (await client.readFile(machine.id, { query: { path: pathOf(machine, path) } })).text(),
        writeFile: ({ flotilla: client, machine }, path, content) =>
          client.writeFile(machine.id, content, { query: { path: pathOf(machine, path) } }),
        mkdir: (sandbox, path) => act(sandbox, ["mkdir", "-p", "--", path]),
        readdir: readDirectory,
        exists: async ({ flotilla: client, machine }, path) =>
          (await client.exec(machine.id, { command: ["test", "-e", pathOf(machine, path)] })).exitCode === 0,
        remove: (sandbox, path) => act(sandbox, ["rm", "-rf", "--", path]),
      },
    },
    snapshot: {
      create: (config, id, options) => createSnapshot(clientOf(config), id, options),
      list: (config, options) => listSnapshots(clientOf(config), options),
      delete: (config, id) => clientOf(config).deleteCheckpoint(id),
    },
  },
});

const clients = new WeakMap<FlotillaConfig, Flotilla>();

/** One client for each configuration, whose connections it keeps. */
function clientOf(config: FlotillaConfig): Flotilla {
  const known = clients.get(config);
  if (known !== undefined) return known;
  const client = new Flotilla({ url: config.url, apiKey: config.apiKey });
  clients.set(config, client);
  return client;
}

const madeOf = (client: Flotilla, machine: MachineInfo): Made => ({
  sandbox: { flotilla: client, machine },
  sandboxId: machine.id,
});

async function create(client: Flotilla, config: FlotillaConfig, options: CreateSandboxOptions): Promise<Made> {
  const { body, snapshotId } = machineRequestOf(config, options);
  const { id } = await (snapshotId === null ? client.createMachine(body, once()) : branch(client, snapshotId));
  try {
    if (snapshotId !== null) await client.updateMachine(id, { ttlSeconds: body.ttlSeconds ?? 0 });
    // ComputeSDK deletes what is made after its caller cancelled.
    return madeOf(client, await client.startMachine(id, { signal: options.signal }));
  } catch (error) {
    await client.deleteMachine(id).catch(() => undefined);
    throw error;
  }
}

async function branch(client: Flotilla, snapshotId: string): Promise<MachineInfo> {
  const { clones } = await client.branchCheckpoint(snapshotId, { count: 1 }, once());
  const [made] = clones;
  if (made === undefined) throw new Error(`snapshot ${snapshotId} made no machine`);
  return made;
}

const once = (): { idempotencyKey: string } => ({ idempotencyKey: globalThis.crypto.randomUUID() });

async function find(client: Flotilla, id: string): Promise<Made | null> {
  try {
    return madeOf(client, await client.getMachine(id));
  } catch (error) {
    if (isMissing(error)) return null;
    throw error;
  }
}

async function list(client: Flotilla): Promise<Made[]> {
  const found: Made[] = [];
  const query = { label: [`${SANDBOX_LABEL}=true`] };
  for await (const machine of items<MachineInfo, ListMachinesQuery>((page) => client.listMachines(page), { query }))
    found.push(madeOf(client, machine));
  return found;
}

async function destroy(client: Flotilla, id: string): Promise<void> {
  await client.deleteMachine(id).catch((error: unknown) => {
    if (!isMissing(error)) throw error;
  });
}

async function runCommand(
  { flotilla: client, machine }: FlotillaSandbox,
  command: string,
  options: RunCommandOptions,
): Promise<CommandResult> {
  const { cwd, env, timeout, background, onStdout, onStderr } = options;
  const request = {
    command,
    ...(cwd === undefined ? {} : { cwd }),
    ...(env === undefined ? {} : { env }),
    ...(timeout === undefined ? {} : { timeoutSeconds: Math.max(1, Math.ceil(timeout / 1000)) }),
  };
  if (background === true) {
    const { stdout, stderr, exitCode, durationMs } = await client.exec(machine.id, { ...request, background });
    return { stdout, stderr, exitCode, durationMs };
  }
  const startedAt = now();
  const { stdout, stderr, exitCode } = await collect(await client.streamExec(machine.id, request), {
    onStdout,
    onStderr,
  });
  return { stdout, stderr, exitCode, durationMs: now() - startedAt };
}

function infoOf({ id, state, createdAt, ttlSeconds, labels }: MachineInfo): SandboxInfo {
  const status = state === "started" ? "running" : state === "error" ? "error" : "stopped";
  const createdAtDate = new Date(createdAt);
  return {
    ...{ id, provider: "flotilla", status, createdAt: createdAtDate, timeout: (ttlSeconds ?? 0) * 1000 },
    metadata: labels,
  };
}

/** The public address of a published port, or the bridge to it, which needs a key. */
async function urlOf({ flotilla: client, machine }: FlotillaSandbox, options: { port: number }): Promise<string> {
  const { ports, url } = await client.getMachine(machine.id);
  if (!ports.some(({ port }) => port === options.port))
    throw new Error(
      `sandbox ${machine.id} does not publish port ${options.port}: create it with ports: [${options.port}]`,
    );
  return url !== null && ports[0]?.port === options.port ? url : client.endpoint(machine.id, options.port);
}

/** Paths that are not absolute begin where commands do. */
const pathOf = ({ workdir }: MachineInfo, path: string): string =>
  path.startsWith("/") ? path : `${workdir ?? ""}/${path}`;

async function act({ flotilla: client, machine }: FlotillaSandbox, command: readonly string[]): Promise<void> {
  const argv = [...command.slice(0, -1), pathOf(machine, command.at(-1) ?? "")];
  const { exitCode, stderr } = await client.exec(machine.id, { command: argv });
  if (exitCode !== 0) throw new Error(`${argv.join(" ")} ended with ${exitCode}: ${stderr.trim()}`);
}

async function readDirectory({ flotilla: client, machine }: FlotillaSandbox, path: string): Promise<FileEntry[]> {
  const answer = await client.readFile(machine.id, { query: { path: pathOf(machine, path), list: true } });
  const entries = (await answer.json()) as readonly ListedFile[];
  return entries.map(({ name, kind, size, modifiedAt }) => ({
    ...{ name, type: kind === "directory" ? "directory" : "file", size, modified: new Date(modifiedAt) },
  }));
}

/** With the memory of a sandbox that runs. */
async function createSnapshot(
  client: Flotilla,
  id: string,
  { name }: CreateSnapshotOptions = {},
): Promise<FlotillaSnapshot> {
  const { state } = await client.getMachine(id);
  if (state === "started") await client.startMachine(id, { query: { forkable: true } });
  return snapshotOf(await client.createCheckpoint(id, name === undefined ? {} : { name }));
}

async function listSnapshots(
  client: Flotilla,
  { sandboxId, limit }: ListSnapshotsOptions = {},
): Promise<FlotillaSnapshot[]> {
  const found: FlotillaSnapshot[] = [];
  for await (const each of items((page) => client.listCheckpoints(page))) {
    if (found.length === limit) break;
    if (sandboxId === undefined || each.machineId === sandboxId) found.push(snapshotOf(each));
  }
  return found;
}

function snapshotOf({ id, createdAt, machineId, name, status }: CheckpointInfo): FlotillaSnapshot {
  return { id, provider: "flotilla", createdAt: new Date(createdAt), metadata: { machineId, name, status } };
}

const isMissing = (error: unknown): boolean => error instanceof FlotillaError && error.code === "not_found";

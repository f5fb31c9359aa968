/**
 * `flotilla machine create IMAGE [-- COMMAND…]`: makes a machine and, with --start, boots it.
 *
 * Prints the machine's name (or id), so that scripts can use it without --json. After a failed start the
 * machine is kept, because its events say why; the error says how to remove it.
 */
import type { CreateMachineRequest, MachineInfo } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { Failure, failureOf, usage } from "../failure.ts";
import { bootMachine } from "./boot.ts";
import { showPlacement } from "./placement.ts";
import { readSecrets } from "./secrets.ts";

export interface CreateOptions {
  readonly name?: string;
  readonly package?: boolean;
  readonly cpus?: number;
  readonly memory?: number;
  readonly disk?: number;
  readonly env?: Readonly<Record<string, string>>;
  readonly secret?: readonly string[];
  readonly workdir?: string;
  readonly network?: "open" | "blocked";
  readonly allowCidr?: readonly string[];
  readonly allowHost?: readonly string[];
  readonly ephemeral?: boolean;
  readonly autoStop?: number;
  readonly ttl?: number;
  readonly restart?: "always" | "never";
  readonly atEnd?: "delete" | "suspend" | "stop";
  readonly disruption?: "migrate" | "restart" | "stop";
  readonly hook?: Readonly<Record<string, string>>;
  readonly label?: Readonly<Record<string, string>>;
  readonly nodeLabel?: Readonly<Record<string, string>>;
  readonly dryRun?: boolean;
  readonly port?: readonly number[];
  readonly public?: boolean;
  readonly branchable?: boolean;
  readonly start?: boolean;
}

export async function run(call: Call, operands: readonly string[], options: CreateOptions): Promise<void> {
  const [image = "", ...command] = operands;
  const flotilla = call.flotilla();
  if (options.dryRun) {
    const { source, resources, network, nodeLabels } = createRequest(image, options);
    return showPlacement(call, await flotilla.explainPlacement({ source, resources, network, nodeLabels }));
  }
  const secretEnv = options.secret === undefined ? {} : { secretEnv: await readSecrets(call.world, options.secret) };
  const created = await flotilla.createMachine({ ...createRequest(image, options, command), ...secretEnv });
  const machine = options.start ? await startNew(call, created) : created;
  if (call.output.isJson) return call.output.json(machine);
  call.output.line(machine.name ?? machine.id);
  if (!options.start && call.output.isWatched) {
    call.output.note(`created, not started: \`flotilla machine start ${machine.name ?? machine.id}\` boots it`);
  }
}

/**
 * The request's body without secrets: only the given options, so that the server's defaults apply to the
 * rest. Pure.
 */
export function createRequest(
  image: string,
  options: CreateOptions,
  command: readonly string[] = [],
): CreateMachineRequest {
  const resources = { cpus: options.cpus, memoryMb: options.memory, diskGb: options.disk };
  const hasResources = Object.values(resources).some((value) => value !== undefined);
  const network = networkRequest(options);
  return {
    source: { type: isPackage(image, options) ? "smolmachine" : "image", reference: image },
    ...(options.name === undefined ? {} : { name: options.name }),
    ...(hasResources ? { resources } : {}),
    ...(network === undefined ? {} : { network }),
    ...(options.env === undefined ? {} : { env: options.env }),
    ...(options.workdir === undefined ? {} : { workdir: options.workdir }),
    ...(options.ephemeral === undefined ? {} : { ephemeral: options.ephemeral }),
    ...(options.autoStop === undefined ? {} : { autoStopSeconds: options.autoStop }),
    ...(options.ttl === undefined ? {} : { ttlSeconds: options.ttl }),
    ...(options.atEnd === undefined ? {} : { atEnd: options.atEnd }),
    ...(options.restart === undefined ? {} : { restart: options.restart }),
    ...(options.disruption === undefined ? {} : { disruption: options.disruption }),
    ...(options.hook === undefined ? {} : { hooks: hooksOf(options.hook) }),
    ...(options.label === undefined ? {} : { labels: options.label }),
    ...(options.nodeLabel === undefined ? {} : { nodeLabels: options.nodeLabel }),
    ...(options.public === undefined ? {} : { public: options.public }),
    ...(options.branchable === undefined ? {} : { branchable: options.branchable }),
    ...(command.length === 0 ? {} : { command: [...command] }),
    ...(options.port === undefined ? {} : { ports: options.port.map((port) => ({ port })) }),
  };
}

/** `machine export` prints references of this form, and no registry of images has such names. */
const isPackage = (reference: string, options: CreateOptions): boolean =>
  options.package === true || reference.startsWith("tenants/");

const hooksOf = (lines: Readonly<Record<string, string>>): CreateMachineRequest["hooks"] =>
  Object.fromEntries(Object.entries(lines).map(([moment, line]) => [moment, { command: ["sh", "-c", line] }]));

function networkRequest(options: CreateOptions): CreateMachineRequest["network"] {
  const { allowCidr: cidrs = [], allowHost: hosts = [] } = options;
  if (cidrs.length === 0 && hosts.length === 0) return options.network && { mode: options.network };
  if (options.network !== undefined) {
    throw usage(
      `--network ${options.network} and --allow-… exclude each other`,
      "--allow-… alone blocks everything else",
    );
  }
  return { mode: "allowCidrs", cidrs, hosts };
}

async function startNew(call: Call, created: MachineInfo): Promise<MachineInfo> {
  const name = created.name ?? created.id;
  try {
    return await bootMachine(call, call.flotilla(), created);
  } catch (error) {
    const failure = failureOf(error, call.connection);
    if (failure === null) throw error;
    throw new Failure(
      failure.message,
      `${name} was created and still exists: \`flotilla machine events ${name}\` says more, \`flotilla machine rm ${name}\` removes it`,
    );
  }
}

/**
 * What ComputeSDK's options mean for a machine. Pure.
 *
 * Providers read different names for the same: those that this one reads are in `machineRequestOf`, and
 * others are ignored, as ComputeSDK's programs expect.
 */
import type { CreateSandboxOptions } from "@computesdk/provider";
import type { CreateMachineRequest } from "@flotilla/sdk";

export interface FlotillaConfig {
  /** The server's address: `http://127.0.0.1:8080`. */
  readonly url: string;
  readonly apiKey: string;
  /** What sandboxes have that name no image; default: `local/busybox`. */
  readonly image?: string;
  /** Milliseconds until a sandbox is deleted, where its options do not say; 0: never. Default: five minutes. */
  readonly timeout?: number;
}

/** Every machine that is a sandbox has it. */
export const SANDBOX_LABEL = "computesdk";

const IMAGE_DEFAULT = "local/busybox";
const TIMEOUT_MS_DEFAULT = 300_000;
const MIB_PER_GB = 1024;

/** Throws a TypeError for an option of another type; what the API refuses is left to it. */
export function machineRequestOf(
  config: FlotillaConfig,
  options: CreateSandboxOptions,
): { readonly body: CreateMachineRequest; readonly snapshotId: string | null } {
  const { image, templateId, snapshotId, name, envs, directory, metadata, timeout } = options;
  const resources = resourcesOf(options);
  const timeoutMs = timeout ?? config.timeout ?? TIMEOUT_MS_DEFAULT;
  const ports = portsOf(options["ports"]);
  const body: CreateMachineRequest = {
    source: { type: "image", reference: image ?? templateId ?? config.image ?? IMAGE_DEFAULT },
    labels: { ...labelsOf(metadata ?? {}), [SANDBOX_LABEL]: "true" },
    ttlSeconds: timeoutMs === 0 ? null : Math.max(1, Math.ceil(timeoutMs / 1000)),
    ...(name === undefined ? {} : { name }),
    ...(envs === undefined ? {} : { env: envs }),
    ...(directory === undefined ? {} : { workdir: directory }),
    ...(Object.keys(resources).length === 0 ? {} : { resources }),
    ...(ports.length === 0 ? {} : { ports }),
    ...(options["public"] === true ? { public: true } : {}),
  };
  return { body, snapshotId: snapshotId ?? null };
}

function resourcesOf(options: CreateSandboxOptions): { cpus?: number; memoryMb?: number; diskGb?: number } {
  const cpus = options.cpus ?? options.vcpus ?? options.cpu;
  const memoryMb = options.memoryMb ?? options.memoryMiB ?? options.memMiB ?? options.memory;
  const diskMib = options.diskMiB;
  return {
    ...(cpus === undefined ? {} : { cpus: Math.ceil(cpus) }),
    ...(memoryMb === undefined ? {} : { memoryMb: Math.ceil(memoryMb) }),
    ...(diskMib === undefined ? {} : { diskGb: Math.ceil(diskMib / MIB_PER_GB) }),
  };
}

function labelsOf(metadata: Readonly<Record<string, unknown>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(metadata).map(([key, value]) => {
      if (typeof value === "string" || typeof value === "number" || typeof value === "boolean")
        return [key, String(value)];
      throw new TypeError(`metadata "${key}" is not a string, a number or a boolean`);
    }),
  );
}

function portsOf(value: unknown): { port: number }[] {
  if (value === undefined) return [];
  if (!Array.isArray(value) || !value.every((each) => Number.isInteger(each)))
    throw new TypeError("ports is not a list of port numbers");
  return (value as readonly number[]).map((port) => ({ port }));
}

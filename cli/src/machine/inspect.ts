/**
 * `flotilla machine inspect REFERENCE`: what a package holds, from its manifest and configuration.
 */
import type { Call } from "../call.ts";
import { descriptorOf, partsOf } from "../package/layout.ts";
import { packageName, RegistryClient } from "../package/registry.ts";
import { renderBytes } from "../table.ts";

interface Config {
  readonly architecture?: string;
  readonly config?: {
    readonly Env?: readonly string[] | null;
    readonly Entrypoint?: readonly string[] | null;
    readonly Cmd?: readonly string[] | null;
    readonly WorkingDir?: string;
    readonly ExposedPorts?: Readonly<Record<string, unknown>>;
    readonly Labels?: Readonly<Record<string, string>> | null;
  };
}

export async function run(call: Call, [reference = ""]: readonly string[]): Promise<void> {
  const { registryNamespace } = await call.flotilla().getCaller();
  const name = packageName(reference, registryNamespace);
  const registry = new RegistryClient(call.connect(), new AbortController().signal);
  const { bytes, digest } = await registry.manifest(name);
  const manifest = JSON.parse(bytes.toString("utf8")) as Readonly<Record<string, unknown>>;
  const config =
    manifest["config"] === undefined
      ? {}
      : (JSON.parse(
          (await registry.blob(name.repository, descriptorOf(manifest["config"]))).toString("utf8"),
        ) as Config);
  if (call.output.isJson) return call.output.json({ ...name, digest, manifest, config });
  const annotations = (manifest["annotations"] ?? {}) as Readonly<Record<string, string>>;
  const { blobs } = partsOf(bytes);
  const {
    Env: env,
    Entrypoint: entrypoint,
    Cmd: cmd,
    WorkingDir: workdir,
    ExposedPorts: ports,
    Labels: labels,
  } = config.config ?? {};
  const diskBytes = Number(annotations["dev.flotilla.disk-bytes"]);
  call.output.facts([
    ["repository", name.repository],
    ["digest", digest],
    ["kind", typeof manifest["artifactType"] === "string" ? manifest["artifactType"] : null],
    ["size", `${renderBytes(blobs.reduce((sum, { size }) => sum + size, 0))} in ${blobs.length} parts`],
    ["disk", Number.isNaN(diskBytes) ? null : `${Math.ceil(diskBytes / 2 ** 30)} GB`],
    ["architecture", annotations["dev.flotilla.architecture"] ?? config.architecture ?? null],
    ["made from", annotations["dev.flotilla.image"] ?? null],
    ["machine", annotations["dev.flotilla.machine"] ?? null],
    ["entrypoint", listed(entrypoint)],
    ["command", listed(cmd)],
    ["workdir", workdir === "" ? null : (workdir ?? null)],
    ["ports", listed(Object.keys(ports ?? {}))],
    ["labels", listed(Object.entries(labels ?? {}).map(([label, value]) => `${label}=${value}`))],
    ["environment", listed(env)],
  ]);
}

const listed = (parts: readonly string[] | null | undefined): string | null =>
  parts === null || parts === undefined || parts.length === 0 ? null : parts.join(" ");

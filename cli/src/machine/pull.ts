/**
 * `flotilla machine pull REFERENCE DIRECTORY`: writes a package into a directory, as an OCI image layout.
 * What the directory has already is not fetched again.
 */
import { writeFile } from "node:fs/promises";
import type { Call } from "../call.ts";
import { localFailure } from "../failure.ts";
import type { Progress } from "../output.ts";
import { Layout, partsOf } from "../package/layout.ts";
import { type Manifest, type PackageName, packageName, RegistryClient } from "../package/registry.ts";
import { stoppable } from "../stoppable.ts";
import { renderBytes } from "../table.ts";

export async function run(call: Call, [reference = "", directory = ""]: readonly string[]): Promise<number> {
  const { registryNamespace } = await call.flotilla().getCaller();
  const name = packageName(reference, registryNamespace);
  const stopping = new AbortController();
  return await stoppable(call, stopping, async () => {
    const registry = new RegistryClient(call.connect(), stopping.signal);
    const layout = new Layout(directory);
    const { digest, mediaType, bytes } = await pull(call, { registry, layout, name }).catch((error: unknown) => {
      throw localFailure(error, directory);
    });
    const tag = name.target.startsWith("sha256:") ? null : name.target;
    await layout.add({ digest, mediaType, size: bytes.byteLength }, tag);
    if (call.output.isJson) return call.output.json({ reference, digest, directory });
    call.output.line(digest);
  });
}

interface Pull {
  readonly registry: RegistryClient;
  readonly layout: Layout;
  readonly name: PackageName;
}

async function pull(call: Call, { registry, layout, name }: Pull): Promise<Manifest> {
  await layout.make();
  using progress = call.output.progress(`pulling ${name.repository}`);
  return await pullManifest({ registry, layout, name }, progress);
}

/** With all that it names. */
async function pullManifest({ registry, layout, name }: Pull, progress: Progress): Promise<Manifest> {
  const manifest = await registry.manifest(name);
  const { blobs, manifests } = partsOf(manifest.bytes);
  for (const child of manifests)
    await pullManifest({ registry, layout, name: { ...name, target: child.digest } }, progress);
  for (const [at, blob] of blobs.entries()) {
    if (await layout.has(blob)) continue;
    progress.say(`pulling ${name.repository}: part ${at + 1} of ${blobs.length}, ${renderBytes(blob.size)}`);
    await registry.download(name.repository, blob, layout.pathOf(blob.digest));
  }
  await writeFile(layout.pathOf(manifest.digest), manifest.bytes);
  return manifest;
}

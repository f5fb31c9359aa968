/**
 * `flotilla machine push DIRECTORY REFERENCE`: sends a package from an OCI image layout to the registry. What
 * the registry has already is not sent again.
 */
import { readFile } from "node:fs/promises";
import type { Call } from "../call.ts";
import { Failure, localFailure } from "../failure.ts";
import type { Progress } from "../output.ts";
import { Layout, type LayoutEntry, partsOf } from "../package/layout.ts";
import { packageName, RegistryClient, sha256 } from "../package/registry.ts";
import { stoppable } from "../stoppable.ts";
import { renderBytes } from "../table.ts";

export interface PushOptions {
  readonly tag?: string;
}

interface Push {
  readonly registry: RegistryClient;
  readonly layout: Layout;
  readonly repository: string;
}

export async function run(
  call: Call,
  [directory = "", reference = ""]: readonly string[],
  { tag }: PushOptions,
): Promise<number> {
  const { registryNamespace } = await call.flotilla().getCaller();
  const { repository, target } = packageName(reference, registryNamespace);
  const layout = new Layout(directory);
  const entry = await layout.find(tag ?? null);
  const stopping = new AbortController();
  return await stoppable(call, stopping, async () => {
    const push = { registry: new RegistryClient(call.connect(), stopping.signal), layout, repository };
    using progress = call.output.progress(`pushing ${repository}`);
    await pushManifest(push, entry, target, progress).catch((error: unknown) => {
      throw localFailure(error, directory);
    });
    if (call.output.isJson) return call.output.json({ repository, tag: target, digest: entry.digest });
    call.output.line(`${repository}:${target}`);
  });
}

/** All that it names first. */
async function pushManifest(push: Push, entry: LayoutEntry, target: string, progress: Progress): Promise<void> {
  const { registry, layout, repository } = push;
  const bytes = await readFile(layout.pathOf(entry.digest));
  if (sha256(bytes) !== entry.digest)
    throw new Failure(`${layout.pathOf(entry.digest)} has other content than its name says`);
  const { blobs, manifests } = partsOf(bytes);
  for (const child of manifests) await pushManifest(push, child, child.digest, progress);
  for (const [at, blob] of blobs.entries()) {
    if (await registry.has(repository, blob.digest)) continue;
    progress.say(`pushing ${repository}: part ${at + 1} of ${blobs.length}, ${renderBytes(blob.size)}`);
    await registry.upload(repository, blob, layout.pathOf(blob.digest));
  }
  const said = (JSON.parse(bytes.toString("utf8")) as { mediaType?: string }).mediaType;
  await registry.putManifest({ repository, target }, { bytes, mediaType: said ?? entry.mediaType });
}

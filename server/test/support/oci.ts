/**
 * A server with its own registry for a test file, and a small client of the OCI distribution protocol.
 *
 * The registry is Debian's docker-registry, as in an installation.
 */
import assert from "node:assert/strict";
import { hash, randomBytes } from "node:crypto";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { until } from "../../../test/support/until.ts";
import { startTestServer, type TestServer, type TestServerOptions } from "./server.ts";
import type { Answer, Client } from "./client.ts";

const OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json";
export const OCI_INDEX = "application/vnd.oci.image.index.v1+json";

export const digestOf = (bytes: string | Uint8Array): string => `sha256:${hash("sha256", bytes, "hex")}`;

/** Starts a server whose registry serves. */
export async function startRegistryServer(options: TestServerOptions = {}): Promise<TestServer> {
  const server = await startTestServer({ registry: "embedded", ...options });
  await registryServes(server.client);
  return server;
}

export const registryServes = (client: Client): Promise<unknown> =>
  until(async () => (await client.get("/metrics")).text.includes("flotilla_registry_available 1"));

/** The process ids of the registry below the data directory, from the outside. */
export async function registryPids(dataDirectory: string): Promise<readonly number[]> {
  const found: number[] = [];
  for (const name of await readdir("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const text = await readFile(`/proc/${name}/cmdline`, "utf8").catch(() => "");
    if (text.startsWith("docker-registry\0") && text.includes(dataDirectory)) found.push(Number(name));
  }
  return found;
}

/** Makes a tenant with a key of these scopes. */
export async function tenantWithKey(
  { client }: TestServer,
  name: string,
  {
    scopes = ["machine:read", "machine:create", "machine:delete"],
    planId,
  }: {
    readonly scopes?: readonly string[];
    readonly planId?: string;
  } = {},
): Promise<{ readonly id: string; readonly keyId: string; readonly client: Client }> {
  const made = await client.post("/v1/tenants", { name, ...(planId === undefined ? {} : { planId }) });
  assert.equal(made.status, 201, made.text);
  const key = await client.post("/v1/apikeys", { tenantId: made.json.id, scopes, description: name });
  assert.equal(key.status, 200, key.text);
  return { id: made.json.id, keyId: key.json.id, client: client.withKey(key.json.key) };
}

/** Uploads a blob as most clients do. Returns its digest. */
export async function pushBlob(client: Client, repository: string, bytes: Uint8Array): Promise<string> {
  const digest = digestOf(bytes);
  const begun = await client.call("POST", `/v2/${repository}/blobs/uploads/`);
  assert.equal(begun.status, 202, begun.text);
  const location = begun.headers.get("location") ?? "";
  const sent = await client.call("PATCH", location, {
    raw: bytes,
    headers: { "content-type": "application/octet-stream" },
  });
  assert.equal(sent.status, 202, sent.text);
  const ended = await client.call("PUT", `${sent.headers.get("location")}?digest=${digest}`);
  assert.equal(ended.status, 201, ended.text);
  return digest;
}

export interface TestImage {
  readonly text: string;
  readonly digest: string;
  readonly layers: readonly Buffer[];
}

/** A manifest over these layers and a small configuration. */
export function imageOf(layers: readonly Buffer[], more: object = {}): TestImage {
  const config = Buffer.from("{}");
  const part = (bytes: Buffer, mediaType: string) => ({ mediaType, digest: digestOf(bytes), size: bytes.length });
  const text = JSON.stringify({
    ...{ schemaVersion: 2, mediaType: OCI_MANIFEST },
    config: part(config, "application/vnd.oci.image.config.v1+json"),
    layers: layers.map((layer) => part(layer, "application/vnd.oci.image.layer.v1.tar")),
    ...more,
  });
  return { text, digest: digestOf(text), layers: [...layers, config] };
}

export const putManifest = (client: Client, path: string, text: string, type = OCI_MANIFEST): Promise<Answer> =>
  client.call("PUT", `/v2/${path}`, { raw: text, headers: { "content-type": type } });

/** Pushes all of an image. */
export async function pushImage(client: Client, repository: string, image: TestImage, tag: string): Promise<void> {
  for (const layer of image.layers) await pushBlob(client, repository, layer);
  const put = await putManifest(client, `${repository}/manifests/${tag}`, image.text);
  assert.equal(put.status, 201, put.text);
  assert.equal(put.headers.get("docker-content-digest"), image.digest);
}

export const randomLayer = (bytes: number): Buffer => randomBytes(bytes);

export const codeOf = (answer: Answer): string => `${answer.status} ${answer.json?.errors?.[0]?.code ?? ""}`.trim();

/** Writes an image of one small layer as an OCI layout, for tools that read one. Returns its manifest. */
export async function writeLayout(directory: string): Promise<string> {
  const layer = gzipSync(Buffer.alloc(1_024));
  const configuration = {
    ...{ architecture: "amd64", os: "linux", config: { Cmd: ["/bin/true"] } },
    rootfs: { type: "layers", diff_ids: [digestOf(Buffer.alloc(1_024))] },
  };
  const config = Buffer.from(JSON.stringify(configuration));
  const part = (bytes: Buffer, mediaType: string) => ({ mediaType, digest: digestOf(bytes), size: bytes.length });
  const manifest = Buffer.from(
    JSON.stringify({
      ...{ schemaVersion: 2, mediaType: OCI_MANIFEST },
      config: part(config, "application/vnd.oci.image.config.v1+json"),
      layers: [part(layer, "application/vnd.oci.image.layer.v1.tar+gzip")],
    }),
  );
  const blobs = join(directory, "blobs", "sha256");
  await mkdir(blobs, { recursive: true });
  for (const bytes of [layer, config, manifest]) await writeFile(join(blobs, digestOf(bytes).slice(7)), bytes);
  await writeFile(join(directory, "oci-layout"), '{"imageLayoutVersion":"1.0.0"}');
  const index = { schemaVersion: 2, manifests: [part(manifest, OCI_MANIFEST)] };
  await writeFile(join(directory, "index.json"), JSON.stringify(index));
  return manifest.toString();
}

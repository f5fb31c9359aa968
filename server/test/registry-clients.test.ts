/**
 * Clients of registries as they are: Debian's skopeo with an API key, and pushes in the order of packers that
 * send blobs in one piece.
 */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { promisify } from "node:util";
import {
  codeOf,
  digestOf,
  imageOf,
  OCI_INDEX,
  putManifest,
  randomLayer,
  startRegistryServer,
  tenantWithKey,
  writeLayout,
} from "./support/oci.ts";

const server = await startRegistryServer();
const one = await tenantWithKey(server, "one");
const two = await tenantWithKey(server, "two");
const work = await mkdtemp(join(tmpdir(), "flotilla-skopeo-"));
after(() => rm(work, { recursive: true, force: true }));
const { host } = new URL(server.url);
const manifest = await writeLayout(join(work, "layout"));

/** Runs skopeo with the logins of a file. Resolves with what it printed. */
async function skopeo(authFile: string, ...args: readonly string[]): Promise<string> {
  const { stdout } = await promisify(execFile)("skopeo", ["--insecure-policy", ...args], {
    env: { PATH: process.env["PATH"], HOME: work, REGISTRY_AUTH_FILE: join(work, authFile), TMPDIR: work },
    timeout: 60_000,
  });
  return stdout;
}

const login = (file: string, key: string | null) =>
  skopeo(file, "login", "--tls-verify=false", "--username", "me", "--password", key ?? "", host);

test("skopeo logs in, copies, inspects, lists and deletes with an API key", async () => {
  await login("one.json", one.client.key);
  const name = `docker://${host}/tenants/${one.id}/web`;
  await skopeo("one.json", "copy", "--dest-tls-verify=false", `oci:${join(work, "layout")}`, `${name}:v1`);
  const inspected = JSON.parse(await skopeo("one.json", "inspect", "--tls-verify=false", `${name}:v1`));
  assert.deepEqual(
    [inspected.Digest, inspected.RepoTags, inspected.Architecture],
    [digestOf(manifest), ["v1"], "amd64"],
  );
  const raw = await skopeo("one.json", "inspect", "--tls-verify=false", "--raw", `${name}@${digestOf(manifest)}`);
  assert.equal(raw, manifest);
  const both = ["--src-tls-verify=false", "--dest-tls-verify=false"];
  await skopeo("one.json", "copy", ...both, `${name}:v1`, `docker://${host}/tenants/${one.id}/team/copy:v2`);
  const tags = JSON.parse(await skopeo("one.json", "list-tags", "--tls-verify=false", name));
  assert.deepEqual(tags.Tags, ["v1"]);
  await skopeo("one.json", "copy", "--src-tls-verify=false", `${name}:v1`, `oci:${join(work, "out")}`);
  const index = JSON.parse(await readFile(join(work, "out", "index.json"), "utf8"));
  assert.equal(index.manifests[0].digest, digestOf(manifest));
  await skopeo("one.json", "delete", "--tls-verify=false", `${name}:v1`);
  await assert.rejects(
    skopeo("one.json", "inspect", "--tls-verify=false", `${name}:v1`),
    /manifest unknown|not found/i,
  );
  const copied = `docker://${host}/tenants/${one.id}/team/copy:v2`;
  assert.equal(await skopeo("one.json", "inspect", "--tls-verify=false", "--raw", copied), manifest);
});

test("skopeo with another tenant's key, or a bad one, gets nothing", async () => {
  await assert.rejects(login("bad.json", "smk_wrong"), /unauthorized|authentication|log in|unknown API key|invalid/i);
  await login("two.json", two.client.key);
  const name = `docker://${host}/tenants/${one.id}/team/copy`;
  for (const args of [
    ["inspect", "--tls-verify=false", `${name}:v2`],
    ["copy", "--src-tls-verify=false", `${name}@${digestOf(manifest)}`, `oci:${join(work, "stolen")}`],
    ["copy", "--dest-tls-verify=false", `oci:${join(work, "layout")}`, `${name}:v3`],
    ["delete", "--tls-verify=false", `${name}:v2`],
  ])
    await assert.rejects(skopeo("two.json", ...args), args.join(" "));
});

test("a packer sends blobs in one piece, then the manifest by digest, its platform's tag and the index", async () => {
  const repository = `tenants/${one.id}/packed`;
  // Its own key first, then the token that the answer names.
  const challenge = (await server.client.withKey(null).call("HEAD", `/v2/${repository}/blobs/${digestOf("")}`)).headers;
  const [, realm = "", service = "", scope = ""] =
    /^Bearer realm="([^"]+)",service="([^"]+)",scope="([^"]+)"$/.exec(challenge.get("www-authenticate") ?? "") ?? [];
  assert.equal(scope, `repository:${repository}:pull`);
  const query = new URLSearchParams({ service, scope: `repository:${repository}:pull,push` });
  const answer = await fetch(`${realm}?${query}`, { headers: { authorization: `Bearer ${one.client.key}` } });
  const { token } = (await answer.json()) as { token: string };
  const client = server.client.withKey(token);
  const image = imageOf([randomLayer(200_000)], {
    artifactType: "application/vnd.smolmachines.smolmachine.v1",
    annotations: { "org.opencontainers.image.title": "web.smolmachine" },
  });
  for (const bytes of image.layers) {
    const digest = digestOf(bytes);
    assert.equal((await client.call("HEAD", `/v2/${repository}/blobs/${digest}`)).status, 404);
    const begun = await client.call("POST", `/v2/${repository}/blobs/uploads/`);
    assert.equal(begun.status, 202);
    const location = begun.headers.get("location") ?? "";
    const put = await client.call("PUT", `${location}?digest=${digest}`, { raw: bytes });
    assert.equal(put.status, 201, put.text);
    assert.equal((await client.call("HEAD", `/v2/${repository}/blobs/${digest}`)).status, 200);
  }
  for (const target of [image.digest, "latest-linux-amd64"])
    assert.equal((await putManifest(client, `${repository}/manifests/${target}`, image.text)).status, 201);
  const part = {
    mediaType: "application/vnd.oci.image.manifest.v1+json",
    digest: image.digest,
    size: image.text.length,
  };
  const platform = { architecture: "amd64", os: "linux" };
  const index = JSON.stringify({ schemaVersion: 2, mediaType: OCI_INDEX, manifests: [{ ...part, platform }] });
  const put = await putManifest(client, `${repository}/manifests/latest`, index, OCI_INDEX);
  assert.equal(put.status, 201, put.text);
  const got = await one.client.get(`/v2/${repository}/manifests/latest`);
  assert.deepEqual([got.text, got.headers.get("content-type")], [index, OCI_INDEX]);
  // The push has ended, and so has what it kept.
  const lease = await server.client.get("/metrics");
  assert.match(lease.text, /flotilla_registry_leases \d/);
  assert.equal(codeOf(await two.client.get(`/v2/${repository}/manifests/latest`)), "404 NAME_UNKNOWN");
});

/**
 * The commands of the first pages run as printed with real machines: what they start in a machine runs there.
 */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { startDocumentHost } from "../support/document-host.ts";
import { blocksOf, judge } from "../support/documents.ts";
import { busyboxPlatforms, pushImage } from "../support/images.ts";
import { enterWorld, namespacesSkipReason } from "../support/namespaces.ts";
import { startRegistry, type TestRegistry } from "../support/registry.ts";
import { cacheDirectory, skipReason } from "./vm-fixture.ts";

const skip = skipReason === false ? namespacesSkipReason : skipReason;
if (skip === false) enterWorld(fileURLToPath(import.meta.url));
let registry: TestRegistry | null = null;
after(async () => await registry?.[Symbol.asyncDispose]());

test("the commands of the README and of workloads do in real machines what they say", { skip }, async () => {
  await using host = await startDocumentHost(async () => {
    registry = await startRegistry();
    const platforms = await busyboxPlatforms();
    await pushImage(registry, "library/alpine", platforms);
    // In place of nginx: a server of the same port.
    const serving = { Cmd: ["sh", "-c", "mkdir /www && echo hello >/www/index.html && httpd -f -p 80 -h /www"] };
    const servers = platforms.map((platform) => ({ ...platform, config: { ...platform.config, ...serving } }));
    for (const tag of ["latest", "1.29"]) await pushImage(registry, `library/nginx:${tag}`, servers);
    return { FLOTILLA_CACHE_DIR: cacheDirectory, FLOTILLA_REGISTRY_MIRRORS: `docker.io=${registry.url}` };
  });
  const blocks = ["README.md", "docs/workloads.md"].flatMap((file) => blocksOf(file).blocks);
  const { code, said } = await host.run(blocks.filter((block) => judge(block) === "run"));
  assert.equal(code, 0, said.slice(-4_000));
  assert.match(said, /^Linux hello \d/m, "the kernel of the machine");
  assert.match(said, /^kept$/m, "the file, after a stop and a start");
  assert.match(said, /^hi$/m, "the page, through its link");
});

/**
 * Real machines become packages in the server's own registry, and machines of another node again, which has
 * nothing of them.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type Flotilla, startFlotilla } from "../support/flotilla.ts";
import { until } from "../support/until.ts";
import { skipReason } from "./vm-fixture.ts";

/** Files of all kinds, 300 MB of content and a hole of 8 GB. */
const FILL = [
  "mkdir -p /workspace/d/deep && cd /workspace/d",
  "echo hello >plain && chmod 4751 plain && chown 12:34 plain && touch -d '2001-02-03 04:05:06' plain",
  "ln plain hard && ln -s ../d/plain soft && ln -s /nowhere gone && mkfifo -m 620 pipe && mknod null c 1 3",
  "chown -h 7:8 soft && chmod 1777 deep && : >empty && echo -n x >'deep/a name with spaces'",
  "truncate -s 8G sparse && echo end >>sparse",
].join(" && ");
const RANDOM = (index: number): string => `head -c 50000000 /dev/urandom >/workspace/d/random-${index}`;
const RANDOM_FILES = 6;
const LIST = "find /workspace/d -exec stat -c '%n %F %a %u %g %Y %h %s %b' {} + | sort";
const HASHES =
  "cd /workspace/d && sha256sum plain hard soft random-* deep/* empty && tail -c 4 sparse && readlink soft && readlink gone";

interface Exported {
  readonly reference: string;
  readonly digest: string;
  readonly sizeBytes: number;
}

/** Waits as long as it takes. */
async function exported(
  flotilla: Flotilla,
  id: string,
  body: object,
): Promise<Exported & { readonly sentBytes: number }> {
  const begun = await flotilla.client().post(`/v1/machines/${id}/export?detach=true`, body);
  assert.equal(begun.status, 202, begun.text);
  return await until(
    async () => {
      const { json } = await flotilla.client().get(`/v1/operations/${begun.json.id}`);
      if (json.status === "running") return false;
      assert.equal(json.status, "succeeded", json.error);
      return json.steps.find(({ digest }: { readonly digest?: string }) => digest !== undefined);
    },
    { what: "the export to end", deadlineMs: 240_000, everyMs: 100 },
  );
}

test("a machine of another node has every file as it was, in a package of the size of its content", {
  skip: skipReason,
}, async () => {
  const serverEnvironment = () => ({ FLOTILLA_REGISTRY: "embedded" });
  await using flotilla = await startFlotilla({ nodes: 2, driver: "qemu", serverEnvironment });
  const client = flotilla.client();
  const { id } = await flotilla.create({
    name: "web",
    resources: { cpus: 1, memoryMb: 256, diskGb: 10 },
    ports: [{ port: 8080 }],
  });
  await flotilla.start(id);
  await flotilla.exec(id, FILL);
  for (let index = 0; index < RANDOM_FILES; index += 1) await flotilla.exec(id, RANDOM(index));
  const [list, hashes] = [await flotilla.exec(id, LIST), await flotilla.exec(id, HASHES)];
  await flotilla.stop(id);
  const home = (await flotilla.get(id)).nodeId ?? "";

  const first = await exported(flotilla, id, { tag: "1" });
  assert.ok(first.sizeBytes > 300e6 && first.sizeBytes < 340e6, `${first.sizeBytes} bytes`);
  const again = await exported(flotilla, id, { tag: "2" });
  assert.deepEqual([again.digest, again.sentBytes], [first.digest, 0]);

  await client.post(`/v1/nodes/${home}/cordon`);
  const copy = await client.post("/v1/machines", { name: "copy", source: { type: "smolmachine", reference: "web:1" } });
  assert.equal(copy.status, 201, copy.text);
  await flotilla.start(copy.json.id);
  assert.notEqual((await flotilla.get(copy.json.id)).nodeId, home);
  assert.equal(await flotilla.exec(copy.json.id, LIST), list);
  assert.equal(await flotilla.exec(copy.json.id, HASHES), hashes);

  // What the copy writes is its own, and little of it is sent.
  await flotilla.exec(copy.json.id, "head -c 1000000 /dev/urandom >/workspace/d/more && sync");
  await flotilla.stop(copy.json.id);
  const third = await exported(flotilla, copy.json.id, { tag: "3", name: "web" });
  assert.notEqual(third.digest, first.digest);
  assert.ok(third.sentBytes <= 40e6, `${third.sentBytes} bytes`);
  assert.equal(await flotilla.exec((await restarted(flotilla, id, home)).id, HASHES), hashes);
});

async function restarted(flotilla: Flotilla, id: string, home: string) {
  await flotilla.client().post(`/v1/nodes/${home}/uncordon`);
  return await flotilla.start(id);
}

/**
 * Images from a real registry in real machines, through the API, as a user has them: every form of reference
 * boots, the image's config applies, files survive a stop, and errors say why.
 */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { type Behaviour, type FaultyProxy, startFaultyProxy } from "../support/faulty-proxy.ts";
import { type Flotilla, startFlotilla } from "../support/flotilla.ts";
import { alpinePlatforms, debianPlatforms, pushImage } from "../support/images.ts";
import { assertInNone, placesOf, plantedValue } from "../support/planted.ts";
import { startRegistry, type TestRegistry } from "../support/registry.ts";
import { until } from "../support/until.ts";
import { skipReason } from "./vm-fixture.ts";

/** Password of the node for one registry. */
const PASSWORD = plantedValue("registry password");
const SMALL = { resources: { cpus: 1, memoryMb: 256, diskGb: 1 } };

interface Result {
  readonly stdout: string;
  readonly stderr: string;
  readonly exitCode: number;
  readonly stdoutB64: string;
  readonly durationMs: number;
}

describe("a machine from a registry's image", { skip: skipReason }, () => {
  let registry: TestRegistry;
  let flotilla: Flotilla;
  /** A registry that needs the credentials of the node. */
  let guarded: FaultyProxy;
  let credentials: string;

  before(async () => {
    registry = await startRegistry();
    await pushImage(registry, "library/alpine:latest", await alpinePlatforms());
    await pushImage(registry, "team/debian:1", await debianPlatforms());
    const foreign = (await alpinePlatforms()).slice(0, 1).map((platform) => ({ ...platform, arch: "s390x" }));
    await pushImage(registry, "team/foreign:1", foreign);
    guarded = await startFaultyProxy(registry.url);
    credentials = await mkdtemp(join(tmpdir(), "flotilla-credentials-"));
    const auths = { [guarded.host]: { auth: Buffer.from(`sailor:${PASSWORD}`).toString("base64") } };
    await writeFile(join(credentials, "config.json"), JSON.stringify({ auths }), { mode: 0o600 });
    const environment = {
      FLOTILLA_REGISTRY_MIRRORS: `docker.io=${registry.url}`,
      FLOTILLA_ALLOWED_REGISTRIES: `127.0.0.1:1,${guarded.host}`,
    };
    const nodeEnvironment = { ...environment, FLOTILLA_REGISTRY_CREDENTIALS: join(credentials, "config.json") };
    flotilla = await startFlotilla({ driver: "qemu", nodeEnvironment, serverEnvironment: () => environment });
  });
  after(async () => {
    await flotilla?.[Symbol.asyncDispose]();
    await guarded?.[Symbol.asyncDispose]();
    await registry?.[Symbol.asyncDispose]();
    if (credentials !== undefined) await rm(credentials, { recursive: true });
  });

  async function startOf(reference: string, body: object = {}): Promise<string> {
    const { id } = await flotilla.create({ source: { type: "image", reference }, ...SMALL, ...body });
    await flotilla.start(id);
    return id;
  }

  async function run(id: string, body: object): Promise<Result> {
    const answer = await flotilla.client().post(`/v1/machines/${id}/exec`, body);
    assert.equal(answer.status, 200, answer.text);
    return answer.json as Result;
  }

  test("`alpine` comes through the mirror, with its config, and keeps its files across stop and start", async () => {
    const id = await startOf("alpine", { env: { OWN: "mine" } });
    assert.match(await flotilla.exec(id, "cat /etc/os-release"), /ID=alpine/);
    const facts = await flotilla.exec(id, "id -un; pwd; echo $OWN; echo kept > /workspace/file; echo lost > /tmp/file");
    const [user, directory, own] = facts.split("\n");
    assert.deepEqual([user, own], ["sailor", "mine"]);
    assert.notEqual(directory, "");
    await flotilla.stop(id);
    await flotilla.start(id);
    assert.equal(await flotilla.exec(id, "cat /workspace/file; ls /tmp"), "kept\n");
    await flotilla.stop(id);
    // A command in a stopped machine starts it.
    assert.equal(await flotilla.exec(id, ["cat", "/workspace/file"]), "kept\n");
    await flotilla.remove(id);
  });

  test("`docker.io/library/alpine` is the same image, and is not pulled again", async () => {
    const id = await startOf("docker.io/library/alpine");
    assert.match(await flotilla.exec(id, "cat /etc/os-release"), /ID=alpine/);
    assert.ok(!(await flotilla.events(id)).some((message) => message.startsWith("pulling")));
    await flotilla.remove(id);
  });

  test("a private `host:port/name:tag` with Debian runs Python and Node", async () => {
    const id = await startOf(`${registry.host}/team/debian:1`, { resources: { cpus: 1, memoryMb: 512 } });
    assert.equal(await flotilla.exec(id, ["python3", "-c", "print(6 * 7)"]), "42\n");
    assert.equal(await flotilla.exec(id, ["node", "-e", "console.log(6 * 7)"]), "42\n");
    await flotilla.remove(id);
  });

  test("commands answer as clients expect: bytes, exit codes, not found, time, children, stdin", async () => {
    const id = await startOf("local/busybox");
    const binary = await run(id, { command: "head -c 300000 /dev/urandom | tee /workspace/bytes" });
    const digest = (await flotilla.exec(id, "sha256sum < /workspace/bytes")).split(" ")[0];
    assert.equal(createHash("sha256").update(Buffer.from(binary.stdoutB64, "base64")).digest("hex"), digest);
    assert.equal((await run(id, { command: "exit 7" })).exitCode, 7);
    const missing = await run(id, { command: ["nothing-like-it"] });
    assert.equal(missing.exitCode, 255);
    assert.match(missing.stderr, /executable file 'nothing-like-it' not found in \$PATH: No such file or directory/);
    const late = await run(id, { command: "sleep 60 & sleep 60", timeoutSeconds: 1 });
    assert.equal(late.exitCode, 124);
    assert.equal(await flotilla.exec(id, "ps | grep -c '[s]leep 60' || true"), "0\n");
    const forked = await run(id, { command: "(sleep 20; echo late) & echo early" });
    assert.deepEqual([forked.exitCode, forked.stdout], [0, "early\n"]);
    assert.ok(forked.durationMs < 10_000, `${forked.durationMs} ms`);
    assert.equal((await run(id, { command: ["cat"], stdin: "über\n" })).stdout, "über\n");
    const endless = await run(id, { command: "yes", timeoutSeconds: 2 });
    assert.equal(endless.exitCode, 124);
    assert.equal(endless.stdout.length, 1024 * 1024);
    await flotilla.remove(id);
  });

  test("a machine that cannot start says why, in the answer, the state and the timeline", async () => {
    for (const [reference, status, code, why] of [
      ["alpine:never", 422, "image_not_found", /image not found/],
      ["library/nothing-like-it", 422, "image_not_found", /image not found/],
      [`${registry.host}/team/foreign:1`, 422, "image_wrong_platform", /s390x/],
      ["local/nothing-like-it", 422, "image_not_found", /local\/nothing-like-it/],
      ["127.0.0.1:1/down:1", 503, "start_failed", /127\.0\.0\.1:1/],
    ] as const) {
      const { id } = await flotilla.create({ source: { type: "image", reference }, ...SMALL });
      const answer = await flotilla.client().post(`/v1/machines/${id}/start`);
      const told = [answer.status, answer.headers.get("x-error-code")];
      assert.deepEqual(told, [status, code], `${reference}: ${answer.text}`);
      assert.match(answer.text, why);
      const machine = await flotilla.get(id);
      assert.equal(machine.state, "error");
      assert.ok(answer.text.includes(machine.error ?? "nothing"), machine.error ?? "");
      assert.ok((await flotilla.events(id)).some((message) => message.startsWith("start failed: ")));
      await flotilla.remove(id);
    }
  });

  test("credentials of a registry are in no log, event, error or audit row, even if the registry sends them back", async () => {
    const basic = Buffer.from(`sailor:${PASSWORD}`).toString("base64");
    const token = plantedValue("registry token");
    const echo = (status: number, headers: Readonly<Record<string, string>>): Behaviour => {
      const body = JSON.stringify({ errors: [{ code: "DENIED", message: `${PASSWORD} ${basic} ${token}` }], token });
      return { kind: "body", status, body, headers: { "content-type": "application/json", ...headers } };
    };
    const realm = `Bearer realm="${guarded.url}/token",service="${basic}",scope="repository:team/debian:pull"`;
    guarded.behave = ({ path, authorization }) => {
      if (path.startsWith("/token")) return echo(200, {});
      if (authorization === null) return echo(401, { "www-authenticate": realm });
      return echo(path.endsWith("500") ? 500 : 403, {});
    };
    const answers: string[] = [];
    for (const tag of ["403", "500"]) {
      const { id } = await flotilla.create({
        source: { type: "image", reference: `${guarded.host}/team/debian:${tag}` },
        ...SMALL,
      });
      const { status, text } = await flotilla.client().post(`/v1/machines/${id}/start`);
      assert.ok(status >= 400, text);
      answers.push(text, JSON.stringify(await flotilla.get(id)), (await flotilla.events(id)).join("\n"));
      await flotilla.remove(id);
    }
    const sent = guarded.seen.map(({ authorization }) => authorization);
    assert.ok(sent.includes(`Basic ${basic}`) && sent.includes(`Bearer ${token}`), sent.join(", "));
    const places = await placesOf(flotilla);
    places.set("an answer", answers.join("\n"));
    assertInNone(
      new Map([
        ["the password", PASSWORD],
        ["the credentials", basic],
        ["the token", token],
      ]),
      places,
    );
  });

  test("a blocked machine starts from a cached image, and pulls nothing", async () => {
    const network = { mode: "blocked" };
    const cached = await startOf("alpine", { network });
    assert.match(await flotilla.exec(cached, "cat /etc/os-release"), /ID=alpine/);
    await flotilla.remove(cached);
    const source = { type: "image", reference: "alpine@sha256:" + "0".repeat(64) };
    const { id } = await flotilla.create({ source, ...SMALL, network });
    const answer = await flotilla.client().post(`/v1/machines/${id}/start`);
    assert.match(answer.text, /not cached on this node.*blocked/s);
    await flotilla.remove(id);
  });

  test("a blocked machine starts when its image was fetched in advance, also after a failed start", async () => {
    const reference = `${registry.host}/team/later:1`;
    await pushImage(registry, "team/later:1", await alpinePlatforms());
    const source = { type: "image", reference };
    const { id } = await flotilla.create({ source, ...SMALL, network: { mode: "blocked" } });
    const refused = await flotilla.client().post(`/v1/machines/${id}/start`);
    assert.equal(refused.status, 422);
    assert.ok(refused.text.includes(`flotilla image pull ${reference}`), refused.text);
    const asked = await flotilla.client().post("/v1/images/pull", { reference });
    assert.equal(asked.status, 202, asked.text);
    const done = await until(
      async () => {
        const operation = (await flotilla.client().get(`/v1/operations/${asked.json.id}`)).json;
        return operation.status !== "running" && operation;
      },
      { what: "the fetch", deadlineMs: 120_000 },
    );
    assert.equal(done.status, "succeeded", done.error);
    assert.match(done.steps[0].message, /^sha256:[0-9a-f]{64}, \d+ layers?, \d+ MB/);
    await flotilla.start(id);
    assert.match(await flotilla.exec(id, "cat /etc/os-release"), /ID=alpine/);
    await flotilla.remove(id);
  });

  test("an environment of 10 MB is refused, and one of a quarter of a megabyte arrives", async () => {
    const large = { BIG: "x".repeat(10 * 1024 * 1024) };
    const source = { type: "image", reference: "local/busybox" };
    const refused = await flotilla.client().post("/v1/machines", { source, env: large });
    assert.ok([413, 422].includes(refused.status), refused.text);
    const env = { ONE: "a".repeat(100_000), TWO: "b".repeat(100_000) };
    const id = await startOf("local/busybox", { env });
    assert.equal(await flotilla.exec(id, "echo ${#ONE} ${#TWO}"), "100000 100000\n");
    await flotilla.remove(id);
  });
});

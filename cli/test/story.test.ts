/**
 * What a user does on the command line, against a real server, and the messages when it goes wrong.
 *
 * Machines are the fake driver's; test/vm shows the same with real ones.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "../../test/support/until.ts";
import { runCli, startCli } from "./run-cli.ts";
import { commandLine, makeDirectory, START_MS, startUp } from "./run-up.ts";

test("against a real server", async (t) => {
  const up = await startUp(t, makeDirectory(t));

  await t.test("keys, events and a failed start are shown as documented against a real server", async (t) => {
    const key = String(
      (await up.cli("key", "create", "--scope", "machine:read", "--description", "for looking")).output,
    ).trim();
    assert.match(key, /^smk_\S+$/);
    const withKey = (...argv: string[]) =>
      runCli(t, argv, { environment: { FLOTILLA_URL: up.url, FLOTILLA_API_KEY: key } });
    assert.equal((await withKey("machine", "ls")).code, 0);
    const unscoped = await withKey("machine", "create", "local/busybox");
    assert.equal(unscoped.code, 1);
    assert.match(unscoped.errors, /^error: missing scope: machine:create\n.*FLOTILLA_API_KEY/);
    const [id = ""] = /key-[0-9a-f]{32}(?=.*for looking)/.exec(String((await up.cli("key", "ls")).output)) ?? [];
    assert.deepEqual((await up.cli("key", "rm", id)).output.toString(), `${id}\n`);
    const revoked = await withKey("machine", "ls");
    assert.match(revoked.errors, /^error: unknown API key\n.*FLOTILLA_API_KEY.*flotilla login/);

    const failing = await up.cli(
      "machine",
      "create",
      "local/busybox",
      "--name",
      "bad",
      "-e",
      "FAKE_BOOT_FAIL=no luck",
      "--start",
    );
    assert.equal(failing.code, 1);
    assert.match(failing.errors, /^error: .*\n.*bad was created and still exists/);
    assert.match(String((await up.cli("machine", "get", "bad")).output), /^state +error: /m);
    assert.match(String((await up.cli("machine", "events", "bad")).output), /error/);
    const taken = await up.cli("machine", "create", "local/busybox", "--name", "bad");
    assert.match(taken.errors, /^error: .*bad/);
    assert.equal((await up.cli("machine", "rm", "bad")).code, 0);
    assert.equal(String((await up.cli("machine", "ls")).output), "");
  });

  await t.test("fetching an image shows its progress, and continues when the command is stopped", async (t) => {
    const fetched = await up.cli("image", "pull", "team/slow-800");
    assert.deepEqual([fetched.code, String(fetched.output)], [0, "team/slow-800\n"], fetched.errors);
    assert.match(fetched.errors, /^pull to \S+: sha256:/m);
    assert.match(String((await up.cli("image", "ls")).output), /team\/slow-800/);
    const missing = await up.cli("image", "pull", "team/missing");
    assert.equal(missing.code, 1);
    assert.match(missing.errors, /^error: image team\/missing does not exist.*\n.*flotilla operation get op-/m);
    const nowhere = await up.cli("image", "pull", "alpine", "--node", "absent");
    assert.match(nowhere.errors, /^error: node absent was not found/);

    const key = readFileSync(join(up.dataDirectory, "admin.key"), "utf8").trim();
    const environment = { FLOTILLA_URL: up.url, FLOTILLA_API_KEY: key };
    const { child, ran } = startCli(t, ["image", "pull", "team/slow-4000"], { environment });
    let said = "";
    child.stderr?.on("data", (chunk: Buffer) => (said += chunk));
    const id = await until(() => /op-[0-9a-f]{32}/.exec(said)?.[0], { what: "its operation", deadlineMs: START_MS });
    child.kill("SIGINT");
    const left = await ran;
    assert.equal(left.code, 130);
    assert.match(left.errors, new RegExp(`continues; \`flotilla operation get ${id}\``));
    const get = async () => String((await up.cli("operation", "get", id)).output);
    await until(async () => /status +succeeded[\s\S]*pull to .* sha256:/.test(await get()), {
      what: "its end",
      deadlineMs: START_MS,
    });
    assert.match(String((await up.cli("operation", "ls")).output), /image pull of team\/slow-4000 +succeeded/);
  });

  await t.test(
    "a machine's address, link and token are each printed alone, and a missing address comes with advice",
    async () => {
      const say = async (...argv: string[]): Promise<string> => {
        const { code, output, errors } = await up.cli("machine", ...argv);
        assert.equal(code, 0, errors);
        return String(output).trim();
      };
      await say("create", "local/busybox", "--name", "web", "--port", "80");
      const stopped = await up.cli("machine", "url", "web");
      assert.match(stopped.errors, /^error: web has no address while it is stopped\n.*machine start web/);
      await say("start", "web");
      const url = await say("url", "web");
      assert.match(url, new RegExp(`^${up.url}/proxy/mach-[0-9a-f]{32}/$`));
      const link = await say("share", "web");
      assert.ok(link.startsWith(`${url}?t=sms_`));
      // Nothing listens in a fake machine, so a permitted caller gets that answer.
      const visit = async (address: string, headers = {}): Promise<number> =>
        (await fetch(address, { headers, redirect: "manual" })).status;
      assert.equal(await visit(link), 302);
      await say("unshare", "web");
      assert.equal(await visit(link), 401);
      const token = await say("connect-token", "web", "--ttl", "2m");
      const bridge = url.replace("/proxy/", "/v1/machines/").replace(/$/, "connect/80/");
      assert.equal(await visit(bridge, { authorization: `Bearer ${token}` }), 502);
      await say("create", "local/busybox", "--name", "inward", "--start");
      const portless = await up.cli("machine", "url", "inward");
      assert.match(portless.errors, /^error: inward publishes no port\n.*--port/);
      await say("rm", "web", "inward");
    },
  );

  await t.test("a node is listed, drained with progress shown, and starts nothing then", async () => {
    const nodes = JSON.parse(String((await up.cli("node", "ls", "--json")).output)) as { readonly id: string }[];
    const id = nodes[0]?.id ?? "";
    assert.match(String((await up.cli("node", "ls")).output), new RegExp(`^NODE .*\n${id} +ready `));
    await up.cli("machine", "create", "local/busybox", "--name", "one", "--start");
    const asked = await up.cli("node", "drain", id, "--detach");
    assert.match(String(asked.output), /^op-[0-9a-f]{32}\n$/, asked.errors);
    await up.cli("machine", "stop", "one");
    const drained = await up.cli("node", "drain", id, "--deadline", "0");
    assert.deepEqual([drained.code, String(drained.output)], [0, `${id}\n`], drained.errors);
    assert.match(String((await up.cli("node", "ls")).output), / drained /);
    assert.match((await up.cli("machine", "start", "one")).errors, /is drained/);
    // `uncordon` says what opens a drained node.
    assert.match(
      (await up.cli("node", "uncordon", id)).errors,
      new RegExp(`is drained.*flotilla node cancel-drain ${id}`),
    );
    assert.equal((await up.cli("node", "cancel-drain", id)).code, 0);
    assert.equal((await up.cli("node", "uncordon", id)).errors, "");
    assert.equal((await up.cli("machine", "start", "one")).code, 0);
    assert.match((await up.cli("node", "drain", "absent")).errors, /^error: node absent was not found/);
  });
});

test("server and node replace the process of their command, and end on SIGTERM", async (t) => {
  const directory = makeDirectory(t);
  const environment = { HOME: directory.path };
  const { child, ran } = startCli(t, ["server", "--listen", "127.0.0.1:0", `--data-dir=${directory.path}`], {
    environment,
  });
  directory.stops.push(async () => ran);
  let output = "";
  child.stdout?.on("data", (chunk: Buffer) => (output += chunk));
  await until(() => output.includes('"url"'), { what: "the server's line", deadlineMs: START_MS });
  assert.match(commandLine(child.pid ?? 0), /server\/src\/main\.ts/);
  child.kill("SIGTERM");
  assert.equal((await ran).code, 0);
  const node = await runCli(t, ["node", "--driver", "nonsense", "--data-dir", directory.path], { environment });
  assert.equal(node.code, 2);
  assert.match(node.errors, /--driver is "nonsense"/);
});

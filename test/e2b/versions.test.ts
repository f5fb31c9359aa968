/**
 * The story of a program with sandboxes, through each version of E2B's client that the gateway supports.
 *
 * The machines are those of the fake driver, whose port of the sandbox's service leads to the gateway's own
 * helper, as a process of this host with its own empty home. test/vm has the same story in a real machine.
 * What the newest version on npm finds is reported, where npm answers, and fails nothing.
 */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { startGateway, type Gateway } from "../../gateway/e2b/src/gateway.ts";
import { systemClock } from "@flotilla/base/clock";
import { createLog } from "../../server/src/log.ts";
import { type Flotilla, startFlotilla } from "../support/flotilla.ts";
import { e2bEnvironment, freePort, onHost, startHostHelper } from "./fixture.ts";
import { Sandbox as CodeSandbox } from "@e2b/code-interpreter";
import { playCode } from "./code-story.ts";
import { playStory, type SandboxClass } from "./story.ts";

/** The packages under which test/e2b/package.json has the versions. */
const VERSIONS = ["e2b-2.21", "e2b-2.30", "e2b-2.45", "e2b-2.50", "e2b"];

let flotilla: Flotilla;
let gateway: Gateway;

before(async () => {
  flotilla = await startFlotilla();
  const url = flotilla.urls[0] ?? "";
  const own = { secret: Buffer.alloc(32, 1), dataDirectory: flotilla.directory };
  const listen = { host: "127.0.0.1", port: 0 };
  gateway = await startGateway({ url, listen, domain: null, ...own, clock: systemClock, log: createLog("warn") });
  e2bEnvironment(gateway.url, flotilla.client().key ?? "");
});

after(async () => {
  await gateway.close();
  await flotilla[Symbol.asyncDispose]();
});

for (const version of VERSIONS)
  test(`a program that uses ${version} finds what it expects`, async () => {
    const { Sandbox } = (await import(version)) as { Sandbox: SandboxClass };
    await play(Sandbox);
  });

async function play(Sandbox: SandboxClass): Promise<void> {
  await using helper = await startHostHelper();
  const calls = await playStory(Sandbox, { create: onHost(helper), url: gateway.url, webPort: await freePort() });
  assert.ok(calls > 40, `${calls} calls`);
}

test("what the newest version finds is reported", async (t) => {
  const newest = await npm(["view", "e2b", "version"]).catch(() => null);
  if (newest === null) return t.skip("npm does not answer");
  const known = createRequire(import.meta.url)("e2b/package.json") as { version: string };
  if (newest === known.version) return t.diagnostic(`the newest version is ${newest}, as above`);
  const directory = await mkdtemp(join(tmpdir(), "flotilla-e2b-"));
  try {
    await npm(["install", "--prefix", directory, `e2b@${newest}`]);
    const entry = createRequire(join(directory, "x.js")).resolve("e2b");
    await play(((await import(entry)) as { Sandbox: SandboxClass }).Sandbox);
    t.diagnostic(`the newest version, ${newest}, finds what it expects`);
  } catch (error) {
    t.diagnostic(`the newest version, ${newest}, is not supported yet: ${String(error)}`);
  } finally {
    await rm(directory, { recursive: true });
  }
});

async function npm(operands: readonly string[]): Promise<string> {
  const quick = ["--fetch-retries=0", "--fetch-timeout=10000", "--no-audit", "--no-fund", "--ignore-scripts"];
  const { stdout } = await promisify(execFile)("npm", [...operands, ...quick], { cwd: tmpdir(), timeout: 120_000 });
  return stdout.trim();
}

test("a program that uses the code interpreter's client finds what it expects", async () => {
  await using helper = await startHostHelper();
  const { template, envs } = onHost(helper);
  // Some of the client's timers last as long, also after their call.
  const requestTimeoutMs = 10_000;
  const sandbox = await CodeSandbox.create(template, { envs, timeoutMs: 120_000, requestTimeoutMs });
  await playCode(sandbox);
  await sandbox.kill();
});

/**
 * The story of a program with sandboxes, through each version of E2B's client that the gateway supports.
 *
 * The machines are those of the fake driver, whose port of the sandbox's service leads to the gateway's own
 * helper, as a process of this host with its own empty home. test/vm has the same story in a real machine.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
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
    await using helper = await startHostHelper();
    const calls = await playStory(Sandbox, { create: onHost(helper), url: gateway.url, webPort: await freePort() });
    assert.ok(calls > 40, `${calls} calls`);
  });

test("a program that uses the code interpreter's client finds what it expects", async () => {
  await using helper = await startHostHelper();
  const { template, envs } = onHost(helper);
  // Some of the client's timers last as long, also after their call.
  const requestTimeoutMs = 10_000;
  const sandbox = await CodeSandbox.create(template, { envs, timeoutMs: 120_000, requestTimeoutMs });
  await playCode(sandbox);
  await sandbox.kill();
});

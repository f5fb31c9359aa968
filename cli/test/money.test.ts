/**
 * Plans, prices, tenants, account and usage on the command line, against a real server.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { runCli } from "./run-cli.ts";
import { makeDirectory, startUp } from "./run-up.ts";

test("an operator makes a plan with prices and a tenant on it, who sees what it may use and has to pay", async (t) => {
  const up = await startUp(t, makeDirectory(t));
  const said = async (...argv: string[]): Promise<string> => {
    const { code, output, errors } = await up.cli(...argv);
    assert.equal(code, 0, errors);
    return String(output).trim();
  };
  const plan = await said("plan", "create", "team", "--cpu-hour", "0.02", "--max-machines", "3", "--budget", "19.99");
  assert.match(await said("plan", "ls"), new RegExp(`${plan} +team .* 0\\.02 .* 19\\.99 \\(none\\)`));
  const tenant = await said("tenant", "create", "payer", "--plan", "team");
  const key = await said("key", "create", "--tenant", "payer");
  const payer = (...argv: string[]) =>
    runCli(t, argv, { environment: { FLOTILLA_URL: up.url, FLOTILLA_API_KEY: key } });

  const account = String((await payer("account")).output);
  assert.match(account, /^plan +team$/m);
  assert.match(account, /^machines +at most 3, \d+ of them running$/m);
  assert.match(account, /^budget +19\.99 a month, 19\.99 remaining \(policy: none\)$/m);
  assert.match(account, /^cost +0\.00 \(CPU 0\.00, memory 0\.00, egress 0\.00, registry 0\.00\)$/m);
  const usage = String((await payer("usage", "--from", "2026-01-01")).output);
  assert.match(usage, /^period +2026-01-01T00:00:00\.000Z to /m);
  assert.match(String((await payer("tenant", "ls")).errors), /^error: missing scope: admin/);
  assert.match(String((await payer("key", "ls", "--tenant", "payer")).errors), /^error: missing scope: admin/);

  await said("plan", "rate", plan, "--cpu-hour", "0.03", "--from", "2999-01-01");
  assert.match(await said("plan", "rates", plan), /the beginning +0\.02 .*now\n.*2999-01-01T00:00:00\.000Z +0\.03/);
  await said("plan", "update", plan, "--max-machines", "5", "--budget", "none");
  assert.match(await said("plan", "ls"), new RegExp(`${plan} +team +5 .* 0\\.02 .* none$`, "m"));
  await said("plan", "update", plan, "--max-machines", "3", "--budget", "19.99");
  assert.match((await up.cli("plan", "update", plan)).errors, /^error: nothing to change was given/);
  const nothing = await up.cli("plan", "rate", plan);
  assert.match(nothing.errors, /^error: no price was given\n +name one with --cpu-hour/);
  const refused = await up.cli("plan", "create", "odd", "--budget-policy", "maybe");
  assert.match(refused.errors, /^error: --budget-policy must be one of none, notify, block, stop\n$/);

  assert.match(await said("tenant", "ls"), new RegExp(`${tenant} +payer +active +team +0\\.000 +0\\.000 +0\\.00`));
  assert.equal(await said("tenant", "suspend", "payer"), tenant);
  assert.match((await payer("account")).errors, /^error: the tenant is suspended/);
  await said("tenant", "reactivate", tenant);
  for (const [kind, ...argv] of [
    ["tenant", "tenant", "suspend", "payers"],
    ["plan", "tenant", "update", "payer", "--plan", "payer"],
  ]) {
    const { code, errors } = await up.cli(...argv);
    assert.deepEqual(
      [code, errors],
      [1, `error: there is no ${kind} called "${argv.at(-1)}"\n       \`flotilla ${kind} ls\` lists them\n`],
    );
  }
  assert.equal(await said("tenant", "update", tenant, "--plan", "default", "--max-memory", "2g"), tenant);
  assert.match(
    await said("tenant", "get", tenant),
    /^plan +default$[^]*^CPUs .* as its plan$[^]*^memory .* at most 2 GB$/m,
  );
  await said("tenant", "update", tenant, "--plan", plan, "--max-memory", "default");
  assert.match(await said("tenant", "get", tenant), /^plan +team$[^]*^memory .* as its plan$/m);
  const unchanged = await up.cli("tenant", "update", tenant);
  assert.match(unchanged.errors, /^error: nothing to change was given\n +name one with --plan/);
  const odd = await up.cli("tenant", "update", tenant, "--max-memory", "much");
  assert.match(odd.errors, /Expected a size such as 512m or 2g/);
  assert.equal((await payer("account")).code, 0);
});

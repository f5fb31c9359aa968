/**
 * Code over HTTP, through a real node agent and a scripted guest whose interpreters run a script of its
 * shell.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { startMachineServer } from "./support/machine-server.ts";

const { client, machine: create } = await startMachineServer();

const machine = (interpreters: string, fields: object = {}) =>
  create({ env: { FAKE_INTERPRETERS: interpreters }, ...fields });

const usual = await machine("python3 node");
const run = (body: object, id = usual) => client.post(`/v1/machines/${id}/code`, body);

test("code runs with the image's interpreter, under each name of its language", async () => {
  for (const language of ["python", "javascript", "node", "js"]) {
    const { status, json, text } = await run({ language, code: `echo ${language}; echo oh >&2; exit 4` });
    assert.equal(status, 200, text);
    assert.deepEqual([json.stdout, json.stderr, json.exitCode, json.machineId], [`${language}\n`, "oh\n", 4, usual]);
    assert.equal(Buffer.from(json.stdoutB64, "base64").toString(), `${language}\n`);
  }
});

test("an image whose interpreter has the other name runs code as well", async () => {
  const other = await machine("python nodejs");
  for (const language of ["python", "javascript"]) {
    assert.equal((await run({ language, code: "echo there" }, other)).json.stdout, "there\n");
  }
});

test("an image without an interpreter is reported with an exit code and the interpreter's name", async () => {
  const bare = await machine("python3");
  const { status, json } = await run({ language: "javascript", code: "echo x" }, bare);
  assert.deepEqual([status, json.exitCode, json.stdout], [200, 255, ""]);
  assert.match(
    json.stderr,
    /^the code did not run: .* no javascript interpreter, neither node nor nodejs .* such as node:22-slim\n$/,
  );
  assert.equal(Buffer.from(json.stderrB64, "base64").toString(), json.stderr);
});

test("cwd, environment and time limit reach the code, and its own input is empty", async () => {
  const code = "pwd; printenv A; cat";
  const { json } = await run({ language: "python", code, cwd: "/tmp", env: { A: "x y" }, timeoutSeconds: 30 });
  assert.equal(json.stdout, "/tmp\nx y\n");
  const late = await run({ language: "python", code: "sleep 60", timeoutSeconds: 1 });
  assert.equal(late.json.exitCode, 124);
  const nulls = await run({ language: "python", code: "echo n", cwd: null, env: null, timeoutSeconds: null });
  assert.equal(nulls.json.stdout, "n\n");
});

test("code of any text up to the limits arrives unchanged", async () => {
  const odd = "echo '$HOME \"`x`\\ ünd ☃'";
  assert.equal((await run({ language: "python", code: odd })).json.stdout, '$HOME "`x`\\ ünd ☃\n');
  const long = `echo ${"y".repeat(1024 * 1024 - 10)}`;
  assert.equal((await run({ language: "python", code: long })).json.stdoutB64.length > 1_300_000, true);
  assert.equal((await run({ language: "python", code: "" })).json.exitCode, 0);
});

test("invalid requests are refused, and so is code in a machine that does not run", async () => {
  const broken = await machine("python3", { env: { FAKE_BOOT_FAIL: "1" } });
  const gone = await machine("python3");
  await client.delete(`/v1/machines/${gone}`);
  const refusals: readonly [object, string, number, string][] = [
    [{ language: "cobol", code: "" }, usual, 400, "invalid_request"],
    [{ language: "toString", code: "" }, usual, 400, "invalid_request"],
    [{ language: "python", code: "", env: { "A=": "" } }, usual, 400, "invalid_request"],
    [{ language: "", code: "" }, usual, 422, "invalid_body"],
    [{ language: "python" }, usual, 422, "invalid_body"],
    [{ language: "python", code: "x".repeat(17 * 1024 * 1024) }, usual, 413, "body_too_large"],
    [{ language: "python", code: "" }, gone, 404, "not_found"],
    [{ language: "python", code: "" }, broken, 503, "start_failed"],
    [{ language: "python", code: "" }, broken, 409, "conflict"],
  ];
  for (const [body, id, status, code] of refusals) {
    const answer = await run(body, id);
    assert.deepEqual([answer.status, answer.headers.get("x-error-code")], [status, code], answer.text.slice(0, 200));
  }
});

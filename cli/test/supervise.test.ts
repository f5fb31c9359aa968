/**
 * What `flotilla up` does with its programs: waits for them, restarts them, stops them in time, and ends them
 * when it dies.
 *
 * The programs are small test programs, run as real processes.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { until } from "../../test/support/until.ts";
import { Program } from "../src/up/program.ts";
import { temporaryHome } from "./run-cli.ts";

const READY = 'process.send({ kind: "ready" });';

function supervise(t: TestContext, source: string, hindrance: () => string | null = () => null) {
  const path = join(temporaryHome(t), "log");
  const lines: string[] = [];
  const program = new Program(
    {
      name: "the program",
      command: [process.execPath, "-e", source],
      environment: { GREETING: "one" },
      readyKind: "ready",
      log: openSync(path, "a"),
      hasOwnSession: true,
      hindrance,
    },
    { clock: systemClock, report: (line) => lines.push(line) },
  );
  t.after(() => program.stop(0));
  const log = (): string[] => readFileSync(path, "utf8").trim().split("\n");
  return { program, lines, log };
}

const isAlive = (pid: number): boolean => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};

test("a program that ends before it is ready fails the start and is not restarted", async (t) => {
  const { program, lines, log } = supervise(t, 'console.error("no database"); process.exit(3)');
  await assert.rejects(program.start(), /the program did not start: it ended with exit code 3/);
  assert.deepEqual([lines, log()], [[], ["no database"]]);
});

test("a program that cannot be run at all fails the start", async (t) => {
  const { program } = supervise(t, "");
  const missing = new Program(
    {
      ...({ name: "it", environment: {}, readyKind: "ready", log: "inherit", hasOwnSession: true } as const),
      command: ["/nowhere"],
    },
    { clock: systemClock, report: () => {} },
  );
  await assert.rejects(missing.start(), /could not be run: .*ENOENT/);
  await program.stop(0);
});

test("what keeps a program from being restarted is reported", async (t) => {
  const source = `console.log(process.pid); process.on("disconnect", () => process.exit()); ${READY}`;
  const { program, lines, log } = supervise(t, source, () => "enter the password");
  await program.start();
  await until(() => log()[0] !== "", { what: "the first start's line" });
  process.kill(Number(log()[0]), "SIGKILL");
  await until(() => lines.length >= 2, { what: "two messages" });
  assert.deepEqual(lines.slice(0, 2), [
    "the program was ended by SIGKILL; it is restarted in 0.5 s",
    "enter the password",
  ]);
});

test("a program that crashes is restarted with the variables added since, and the user gets a message", async (t) => {
  const { program, lines, log } = supervise(
    t,
    `console.log(process.pid, process.env.GREETING); process.on("disconnect", () => process.exit()); ${READY}`,
  );
  assert.deepEqual(await program.start(), { kind: "ready" });
  program.remember({ GREETING: "two" });
  await until(() => log()[0]?.endsWith("one"), { what: "the first start's line" });
  process.kill(Number.parseInt(log()[0] ?? "", 10), "SIGKILL");
  await until(() => lines.length === 2, { what: "two messages" });
  assert.deepEqual(lines, ["the program was ended by SIGKILL; it is restarted in 0.5 s", "the program runs again"]);
  assert.match(log()[1] ?? "", /two$/);
  await program.stop(5000);
  assert.equal(isAlive(Number.parseInt(log()[1] ?? "", 10)), false);
});

test("a program that cannot be run again, for instance for want of memory, is tried again", async (t) => {
  const { program, lines, log } = supervise(
    t,
    `console.log(process.pid); process.on("disconnect", () => process.exit()); ${READY}`,
  );
  await program.start();
  await until(() => log()[0] !== "", { what: "its line" });
  // More than one variable may have.
  program.remember({ GREETING: "x".repeat(200_000) });
  process.kill(Number(log()[0]), "SIGKILL");
  await until(() => lines.length >= 2, { what: "two messages" });
  assert.match(lines[1] ?? "", /^the program could not be run: .*E2BIG; it is restarted in 1 s$/);
  program.remember({ GREETING: "one" });
  await until(() => lines.at(-1) === "the program runs again", { what: "its return" });
});

test("a stop is requested, awaited, and enforced after its deadline", async (t) => {
  const orderly = supervise(
    t,
    `process.on("SIGTERM", () => { console.log("bye"); process.exit() }); setInterval(() => {}, 1000); ${READY}`,
  );
  await orderly.program.start();
  await orderly.program.stop(10_000);
  assert.deepEqual([orderly.log(), orderly.lines], [["bye"], []]);
  const deaf = supervise(t, `process.on("SIGTERM", () => {}); setInterval(() => {}, 1000); ${READY}`);
  await deaf.program.start();
  await deaf.program.stop(50);
  assert.match(deaf.lines.join("\n"), /^the program did not end within [0-9.]+ s and is killed$/);
});

test("a program can be stopped in the pause before its restart", async (t) => {
  const { program, lines } = supervise(t, `${READY} setImmediate(() => process.exit(1))`);
  await program.start();
  await until(() => lines.length > 0, { what: "the message about the end" });
  await program.stop(5000);
  assert.equal(lines.filter((line) => line.includes("runs again")).length, 0);
});

test("when its parent is killed, the program sees the channel close in any case", async (t) => {
  const child = `console.log(process.pid); process.on("disconnect", () => process.exit()); ${READY}`;
  const parent = `
    import { Program } from ${JSON.stringify(new URL("../src/up/program.ts", import.meta.url).href)};
    import { systemClock } from ${JSON.stringify(import.meta.resolve("@flotilla/base/clock"))};
    const spec = { name: "it", command: [process.execPath, "-e", ${JSON.stringify(child)}], environment: {} };
    const more = { readyKind: "ready", log: 1, hasOwnSession: true };
    await new Program({ ...spec, ...more }, { clock: systemClock, report: () => {} }).start();`;
  const process_ = spawn(process.execPath, ["--input-type=module", "-e", parent], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  t.after(() => process_.kill("SIGKILL"));
  const [chunk] = (await once(process_.stdout, "data")) as [Buffer];
  const pid = Number(String(chunk).trim());
  assert.equal(isAlive(pid), true);
  process_.kill("SIGKILL");
  await until(() => !isAlive(pid), { what: "the end of the program" });
});

/**
 * `flotilla image make-local` that is stopped while Debian's packages are fetched, with another program as
 * mmdebstrap.
 */
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { replyJson, startPeer } from "../../sdk/test/peer.ts";
import { until } from "../../test/support/until.ts";
import { startCli, temporaryHome } from "./run-cli.ts";

const isRunning = (pid: string): boolean => existsSync(`/proc/${pid}`);

test("making an image that is stopped leaves no file and no program", { timeout: 30_000 }, async (t) => {
  const directory = temporaryHome(t);
  const [programs, temporary, pidFile] = [join(directory, "bin"), join(directory, "tmp"), join(directory, "pid")];
  mkdirSync(programs);
  mkdirSync(temporary);
  writeFileSync(
    join(programs, "mmdebstrap"),
    `#!/bin/sh\necho $$ >${pidFile}.new\nmv ${pidFile}.new ${pidFile}\nexec sleep 600\n`,
    {
      mode: 0o755,
    },
  );
  const peer = await startPeer(t, replyJson({ tenantId: "t" }));
  const environment = {
    FLOTILLA_URL: peer.url,
    FLOTILLA_API_KEY: "smk_test",
    PATH: `${programs}:${process.env["PATH"]}`,
    TMPDIR: temporary,
  };
  const { child, ran } = startCli(t, ["image", "make-local", "python"], { environment, directory });
  await until(() => existsSync(pidFile), { what: "the packages to be fetched" });
  const pid = readFileSync(pidFile, "utf8").trim();
  assert.ok(isRunning(pid) && readdirSync(temporary).length === 1);
  child.kill("SIGINT");
  const { code, errors } = await ran;
  assert.deepEqual([code, errors, readdirSync(temporary)], [130, "", []]);
  await until(() => !isRunning(pid), { what: "the program to end" });
});

/**
 * Real machines that are checked: a web server in the guest, its end, and a command in the guest.
 */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import pg from "pg";
import type { MachineHealth, MachineHealthCheck } from "@flotilla/contract/link/link";
import { sharedDatabaseUrl } from "../support/database.ts";
import { type Flotilla, startFlotilla } from "../support/flotilla.ts";
import { until } from "../support/until.ts";
import { skipReason } from "./vm-fixture.ts";

const LONG = { deadlineMs: 60_000 };
/** An emulated guest that is busy needs more than a second for an answer. */
const TIMES = { intervalMs: 500, timeoutMs: 20_000, retries: 2 };
const HTTP: MachineHealthCheck = {
  ...{ type: "http", path: "/state?deep=1", port: 80, command: null, host: "web.example.com", ...TIMES },
};
const EXEC: MachineHealthCheck = {
  ...{ type: "exec", path: null, port: null, host: null, ...TIMES },
  command: ["sh", "-c", "[ -e /tmp/good ] || { echo not good yet >&2; exit 3; }"],
};

describe("the health of a real machine", { skip: skipReason }, () => {
  let flotilla: Flotilla;
  let database: pg.Client;

  before(async () => {
    const databaseUrl = await sharedDatabaseUrl();
    flotilla = await startFlotilla({ driver: "qemu", databaseUrl });
    database = new pg.Client({ connectionString: databaseUrl });
    await database.connect();
  });
  after(async () => {
    await database?.end();
    await flotilla?.[Symbol.asyncDispose]();
  });

  /** A machine as an app makes it: with a check, before it is started. */
  async function checkedMachine(check: MachineHealthCheck): Promise<string> {
    const { id } = await flotilla.create({ ports: [{ port: 80 }], network: { mode: "blocked" } });
    const update = "UPDATE machines SET health = $2, revision = revision + 1 WHERE id = $1 RETURNING revision";
    const { rows } = await database.query<{ revision: number }>(update, [id, JSON.stringify(check)]);
    await database.query("SELECT pg_notify('machines', $1)", [`${id}:${rows[0]?.revision}`]);
    await flotilla.start(id);
    return id;
  }

  const health = async (id: string): Promise<MachineHealth | null> => {
    const select = "SELECT observed_details->'health' AS health FROM machines WHERE id = $1";
    return (await database.query<{ health: MachineHealth | null }>(select, [id])).rows[0]?.health ?? null;
  };
  const becomes = (id: string, status: MachineHealth["status"], reason: RegExp | null): Promise<MachineHealth> =>
    until(
      async () => {
        const seen = await health(id);
        const isRight = reason === null ? seen?.reason === null : reason.test(seen?.reason ?? "");
        return seen?.status === status && isRight && seen;
      },
      { what: `the machine to be ${status} (${reason})`, ...LONG },
    );
  const serve = async (id: string): Promise<void> => {
    const command = ["sh", "-c", "mkdir -p /www; echo $$ >/tmp/httpd; exec busybox httpd -f -p 80 -h /www"];
    const answer = await flotilla.client().post(`/v1/machines/${id}/exec`, { command, background: true });
    assert.equal(answer.status, 200, answer.text);
  };

  test("follows its web server: from what listens, over what it answers, to its end", async () => {
    const id = await checkedMachine(HTTP);
    await becomes(id, "unhealthy", /^nothing listens on port 80$/);
    await serve(id);
    await becomes(id, "unhealthy", /^GET \/state\?deep=1 was answered 404: /);
    await flotilla.exec(id, "echo good >/www/state");
    const healthy = await becomes(id, "healthy", null);
    await flotilla.nodes[0]?.kill();
    await flotilla.startNode();
    await flotilla.exec(id, "true");
    assert.deepEqual(await health(id), healthy, "a new agent knows nothing, and what was known stays known");
    await flotilla.exec(id, "kill $(cat /tmp/httpd)");
    await becomes(id, "unhealthy", /^nothing listens on port 80$/);
  });

  test("follows a command in it, by its exit code and what it says", async () => {
    const id = await checkedMachine(EXEC);
    await becomes(id, "unhealthy", /^the command ended with exit code 3: not good yet$/);
    await flotilla.exec(id, "touch /tmp/good");
    await becomes(id, "healthy", null);
  });
});

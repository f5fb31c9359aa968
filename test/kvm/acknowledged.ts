/**
 * A program for the emulated host: makes changes on a running Flotilla and prints each one that was
 * acknowledged, or checks that they are all there.
 *
 *     node acknowledged.ts make                     prints a Fact for each change, one JSON value a line, until it is ended
 *     FACTS=<base64> node acknowledged.ts check     prints what is missing; exit code 1 if anything is
 *
 * Both wait until Flotilla serves. FLOTILLA_URL and FLOTILLA_DATA_DIR say which one.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { type Answer, Client } from "../../server/test/support/client.ts";
import { until } from "../support/until.ts";

/** A change whose answer was received. */
export type Fact =
  | { readonly kind: "tenant"; readonly id: string; readonly key: string }
  | { readonly kind: "runs" | "created" | "deleted"; readonly machineId: string }
  /** Synced in the machine. */
  | { readonly kind: "file"; readonly machineId: string; readonly path: string; readonly content: string }
  | { readonly kind: "key"; readonly id: string; readonly key: string }
  | { readonly kind: "revoked"; readonly key: string }
  | { readonly kind: "invoice"; readonly month: string; readonly lines: unknown; readonly totalMicros: number };

const URL_OF_FLOTILLA = process.env["FLOTILLA_URL"] ?? "";
const DATA_DIRECTORY = process.env["FLOTILLA_DATA_DIR"] ?? "";
const DEADLINE_MS = 300_000;
const HOUR = 3_600_000;
/** How many months are rehearsed: each makes an invoice. */
const ROUNDS_OF_INVOICE = 3;
const small = {
  source: { type: "image", reference: "local/busybox" },
  resources: { cpus: 1, memoryMb: 256, diskGb: 1 },
};

function say(fact: Fact): void {
  process.stdout.write(`${JSON.stringify(fact)}\n`);
}

/** The body of an answer with this status; without one, of any that reports success. */
function must(answer: Answer, status?: number): Answer["json"] {
  const isExpected = status === undefined ? answer.status >= 200 && answer.status < 300 : answer.status === status;
  assert.ok(isExpected, `${answer.method} was answered with ${answer.status}: ${answer.text}`);
  return answer.json;
}

/** A client of the operator, once Flotilla serves and its node has reported since this program began. */
async function operator(): Promise<Client> {
  const begunAt = Date.now();
  return await until(
    async () => {
      const client = new Client(URL_OF_FLOTILLA, readFileSync(join(DATA_DIRECTORY, "admin.key"), "utf8").trim());
      const nodes = must(await client.get("/v1/nodes")) as { status: string; lastHeartbeatAt: string | null }[];
      const hasReported = nodes.some(
        ({ status, lastHeartbeatAt }) => status === "ready" && Date.parse(lastHeartbeatAt ?? "") >= begunAt,
      );
      return hasReported && client;
    },
    { what: "Flotilla to serve", deadlineMs: DEADLINE_MS, everyMs: 1_000 },
  );
}

async function make(): Promise<void> {
  const admin = await operator();
  const rates = { rateCpuHourMicros: HOUR, rateMemoryGbHourMicros: 0 };
  const name = randomBytes(4).toString("hex");
  const plan = must(await admin.post("/v1/plans", { name, ...rates }));
  const tenant = must(await admin.post("/v1/tenants", { name, planId: plan.id, testClock: true }));
  const { key } = must(await admin.post("/v1/apikeys", { tenantId: tenant.id }));
  const own = admin.withKey(key);
  say({ kind: "tenant", id: tenant.id, key });
  const machineId: string = must(await own.post("/v1/machines", small)).id;
  must(await own.post(`/v1/machines/${machineId}/start`));
  say({ kind: "runs", machineId });
  for (let round = 1; ; round += 1) {
    await changeKeys(admin, tenant.id);
    await writeFileIn(own, machineId, `/workspace/${name}-${round}`);
    await changeMachines(own, round);
    if (round % ROUNDS_OF_INVOICE === 0) await endMonth(admin, own, tenant.id);
  }
}

async function changeKeys(admin: Client, tenantId: string): Promise<void> {
  const made = must(await admin.post("/v1/apikeys", { tenantId }));
  say({ kind: "key", id: made.id, key: made.key });
  const gone = must(await admin.post("/v1/apikeys", { tenantId }));
  must(await admin.delete(`/v1/apikeys/${gone.id}`));
  say({ kind: "revoked", key: gone.key });
}

async function writeFileIn(own: Client, machineId: string, path: string): Promise<void> {
  const content = randomBytes(2048).toString("base64");
  const query = `path=${encodeURIComponent(path)}`;
  must(await own.post(`/v1/machines/${machineId}/files?${query}`, undefined, { raw: content }));
  const synced = must(await own.post(`/v1/machines/${machineId}/exec`, { command: ["sync"] }));
  assert.equal(synced.exitCode, 0);
  say({ kind: "file", machineId, path, content });
}

async function changeMachines(own: Client, round: number): Promise<void> {
  const { id } = must(await own.post("/v1/machines", small));
  if (round % 2 === 0) {
    must(await own.delete(`/v1/machines/${id}`));
    say({ kind: "deleted", machineId: id });
  } else say({ kind: "created", machineId: id });
}

/** Moves the tenant's billing time over the end of its month and of the grace period. */
async function endMonth(admin: Client, own: Client, tenantId: string): Promise<void> {
  const now = new Date(must(await own.get("/v1/account")).testClock);
  const month = now.toISOString().slice(0, 7);
  const to = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1, 4)).toISOString();
  must(await admin.post(`/v1/tenants/${tenantId}/clock`, { to }));
  const invoice = await until(
    async () => {
      const found = must(await own.get(`/v1/billing/invoices/${month}`));
      return found.status === "finalized" && found;
    },
    { what: "the invoice to be final", deadlineMs: DEADLINE_MS, everyMs: 1_000 },
  );
  assert.ok(invoice.totalMicros > 0);
  say({ kind: "invoice", month, lines: invoice.lines, totalMicros: invoice.totalMicros });
}

/** A text for each fact that is missing. */
async function missing(facts: readonly Fact[]): Promise<readonly string[]> {
  const admin = await operator();
  const found: string[] = [];
  let own = admin;
  let tenantId = "";
  for (const fact of facts) {
    if (fact.kind === "tenant") [own, tenantId] = [admin.withKey(fact.key), fact.id];
    try {
      await check(fact, admin, own, tenantId);
    } catch (error) {
      found.push(`${JSON.stringify(fact).slice(0, 300)}: ${(error as Error).message}`);
    }
  }
  return found;
}

async function check(fact: Fact, admin: Client, own: Client, tenantId: string): Promise<void> {
  switch (fact.kind) {
    case "tenant":
      return void must(await own.get("/v1/account"));
    case "runs":
      return await runsAgain(own, fact.machineId);
    case "created":
      must(await own.get(`/v1/machines/${fact.machineId}`));
      return await isAudited(admin, tenantId, fact.machineId, "machines.createMachine");
    case "deleted":
      must(await own.get(`/v1/machines/${fact.machineId}`), 404);
      return await isAudited(admin, tenantId, fact.machineId, "machines.deleteMachine");
    case "file": {
      const read = await own.get(`/v1/machines/${fact.machineId}/files?path=${encodeURIComponent(fact.path)}`);
      assert.equal(read.status, 200, read.text);
      return assert.equal(read.text, fact.content);
    }
    case "key":
      return void must(await admin.withKey(fact.key).get("/v1/me"));
    case "revoked":
      return void must(await admin.withKey(fact.key).get("/v1/me"), 401);
    case "invoice": {
      const { status, lines, totalMicros } = must(await own.get(`/v1/billing/invoices/${fact.month}`));
      return assert.deepEqual([status, lines, totalMicros], ["finalized", fact.lines, fact.totalMicros]);
    }
  }
}

/** Without a request to start it. */
async function runsAgain(own: Client, machineId: string): Promise<void> {
  const isReady = async (): Promise<boolean> => {
    const { state, ready, error } = must(await own.get(`/v1/machines/${machineId}`));
    if (state === "started" && ready === true) return true;
    throw new Error(`it is ${state} (${error})`);
  };
  await until(isReady, { what: `machine ${machineId} to run`, deadlineMs: DEADLINE_MS, everyMs: 1_000 });
}

async function isAudited(admin: Client, tenantId: string, resource: string, type: string): Promise<void> {
  const rows = must(await admin.get(`/v1/audit?tenantId=${tenantId}&resource=${resource}`)) as {
    type: string;
  }[];
  assert.ok(
    rows.some((row) => row.type === type),
    `no ${type} in the audit log`,
  );
}

if (process.argv[2] === "make") await make();
else if (process.argv[2] === "check") {
  const facts = JSON.parse(Buffer.from(process.env["FACTS"] ?? "", "base64").toString("utf8")) as readonly Fact[];
  const found = await missing(facts);
  process.stdout.write(found.map((line) => `${line}\n`).join(""));
  process.exit(found.length === 0 ? 0 : 1);
}

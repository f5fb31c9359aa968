/**
 * A PostgreSQL for test files that run one after the other: scripts/testing/postgres.ts starts this program
 * for each of its places, and tells files where it is.
 *
 * Prints the connection as a line of JSON. For each line that it reads it drops the databases that the last
 * file made, and prints the processor time of PostgreSQL so far, in milliseconds. The end of its input ends
 * it.
 */
import { readFileSync } from "node:fs";
import { realpath, rm } from "node:fs/promises";
import { createInterface } from "node:readline";
import pg from "pg";
import { createLog } from "../../src/log.ts";
import { startTestCluster, TEMPLATE } from "./cluster.ts";

const { directory, postgres } = await startTestCluster(createLog("error"));
const { connection } = postgres;
// The path of its socket is one of this process.
const host = await realpath((connection as { readonly host: string }).host);
process.stdout.write(`${JSON.stringify({ ...connection, host })}\n`);
for await (const _line of createInterface({ input: process.stdin })) {
  const client = new pg.Client({ ...connection, database: "postgres" });
  await client.connect();
  const { rows } = await client.query<{ name: string }>(
    "SELECT quote_ident(datname) AS name FROM pg_database WHERE NOT datistemplate AND datname NOT IN ('postgres', 'flotilla', $1)",
    [TEMPLATE],
  );
  for (const { name } of rows) await client.query(`DROP DATABASE ${name} WITH (FORCE)`);
  await client.end();
  process.stdout.write(`${cpuMs(postgres.pid())}\n`);
}
await postgres.stop();
await rm(directory, { recursive: true, force: true });

/** Sums up a process and its children that have ended: the kernel counts in hundredths of a second. */
function cpuMs(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  const times = stat
    .slice(stat.lastIndexOf(")") + 2)
    .split(" ")
    .slice(11, 15);
  return times.reduce((sum, ticks) => sum + Number(ticks) * 10, 0);
}

/**
 * Regenerates server/src/db/schema.sql, from an embedded PostgreSQL that it starts, migrates and stops.
 *
 * Not part of `npm run golden`, which needs no database; server/test/schema.test.ts fails when the file is stale. A
 * killed run leaves its temporary directory.
 */
import { randomBytes } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { systemClock } from "@flotilla/base/clock";
import pg from "pg";
import { migrate } from "../server/src/db/migrate.ts";
import { startEmbeddedPostgres } from "../server/src/embedded-postgres/embedded.ts";
import { createLog } from "../server/src/log.ts";
import { renderSchema } from "./render-schema.ts";

const file = path.resolve(import.meta.dirname, "../server/src/db/schema.sql");
const directory = await mkdtemp(path.join(tmpdir(), "flotilla-schema-"));
const log = createLog("error");
const options = { directory: path.join(directory, "postgres"), clock: systemClock, log, randomBytes };
const postgres = await startEmbeddedPostgres(options);
try {
  await migrate({ connection: postgres.connection, log });
  const client = new pg.Client(postgres.connection);
  await client.connect();
  try {
    await writeFile(file, await renderSchema(client));
  } finally {
    await client.end();
  }
} finally {
  await postgres.stop();
  await rm(directory, { recursive: true, force: true });
}

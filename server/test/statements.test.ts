/**
 * PostgreSQL accepts every statement of the server for the current schema: a renamed column or a type that
 * does not fit shows here, also in statements that no other test runs.
 *
 * Statements that are not sql`…` (in db/ and embedded-postgres/) run whenever a server starts.
 */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import pg from "pg";
import { freshDatabase } from "./support/server.ts";
import { type SourceStatement, statementsOfServer } from "./support/source-statements.ts";

const client = new pg.Client({ connectionString: await freshDatabase() });
// PostgreSQL ends before the connection does.
client.on("error", () => undefined);
await client.connect();
after(() => client.end());
const { statements, unused } = await statementsOfServer();

/** null: it is valid. */
async function faultOf({ place, text }: SourceStatement): Promise<string | null> {
  // A statement that only changes the session cannot be prepared, and takes no parameters.
  const isUtility = text.trimStart().startsWith("LOCK");
  await client.query("BEGIN");
  try {
    await client.query(isUtility ? text : `PREPARE checked AS ${text}`);
    if (!isUtility) await client.query("DEALLOCATE checked");
    return null;
  } catch (error) {
    return `${place}: ${(error as Error).message}`;
  } finally {
    await client.query("ROLLBACK");
  }
}

test("every statement of the server can be prepared", async () => {
  const faults: string[] = [];
  for (const statement of statements) {
    const fault = await faultOf(statement);
    if (fault !== null) faults.push(fault);
  }
  assert.deepEqual(faults, []);
});

test("every fragment of SQL is part of a statement that was prepared", () => {
  assert.deepEqual(unused, []);
  assert.ok(statements.length > 80, `only ${statements.length} statements were found`);
});

test("a statement that does not fit the schema is found", async () => {
  const fault = await faultOf({ place: "here", text: "SELECT no_such_column FROM machines WHERE id = $1" });
  assert.match(fault ?? "", /^here: column "no_such_column" does not exist/);
});

/**
 * Machines that may be branched, and what branches leave.
 */
import assert from "node:assert/strict";
import { access, readFile } from "node:fs/promises";
import { join } from "node:path";
import { until, type UntilOptions } from "../../../test/support/until.ts";
import { type Queryable, sql } from "../../src/db/database.ts";
import type { Client } from "./client.ts";
import { SOURCE } from "./machine-server.ts";
import type { TestNode } from "./node.ts";

export interface BranchSource {
  readonly id: string;
  readonly name: string;
}

/** A running machine that may be branched. */
export async function branchSource(client: Client, fields: object = {}): Promise<BranchSource> {
  const made = await client.post("/v1/machines", {
    ...{ source: SOURCE, branchable: true, resources: { cpus: 1, memoryMb: 256, diskGb: 1 }, labels: { team: "a" } },
    ...fields,
  });
  assert.equal(made.status, 201, made.text);
  const started = await client.post(`/v1/machines/${made.json.id}/start`);
  assert.equal(started.status, 200, started.text);
  return made.json;
}

/** The layers that the journal of a machine names. */
export async function layersOf({ directory }: Pick<TestNode, "directory">, id: string): Promise<readonly string[]> {
  const journal = join(directory, "node", "machines", id, "journal.json");
  return JSON.parse(await readFile(journal, "utf8")).layers ?? [];
}

/** The id of the first point of a machine, which is not made yet: the machine's disk is on top of it. */
export const firstLayer = (node: Pick<TestNode, "directory">, id: string): Promise<string> =>
  until(async () => {
    const [layer] = await layersOf(node, id);
    if (layer === undefined) return false;
    const overlay = join(node.directory, "node", "points", layer, "overlay");
    return await access(overlay).then(
      () => false,
      () => layer,
    );
  });

/** Waits until no node is to have a point, or to remove one. */
export const untilNoPointIsLeft = (db: Queryable, how: UntilOptions = {}): Promise<boolean> =>
  until(async () => (await pointsLeft(db)) === 0, { what: "points to be removed", ...how });

const pointsLeft = async (db: Queryable): Promise<number> =>
  (await db.queryOne<{ count: number }>(sql`SELECT count(*)::int AS count FROM branch_points`))?.count ?? -1;

/** The names of the machines of a tenant that begin so. */
export async function namesOf(client: Client, prefix: string): Promise<readonly string[]> {
  const machines: readonly { readonly name: string }[] = (await client.get("/v1/machines")).json;
  return machines.map(({ name }) => name).filter((name) => name.startsWith(prefix));
}

/**
 * The page of planned features (docs/where-things-go.md) agrees with the table of rooms: each room has a
 * place there, and imports only rooms that are before it.
 */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { PROGRAMS } from "../../scripts/tidy/rooms.ts";

const page = await readFile(new URL("../../docs/where-things-go.md", import.meta.url), "utf8");
const server = page.slice(page.indexOf("## In the server"), page.indexOf("In every row:"));
const rows = server
  .split("\n")
  .filter((line) => line.startsWith("| ") && !line.startsWith("| feature"))
  .map((line) => line.split("|").map((cell) => cell.trim()))
  .map(([, feature = "", room = "", after = "", imports = ""]) => ({
    feature,
    room: namesIn(room)[0]?.replace(/\/.*/, "") ?? "",
    after: namesIn(after)[0],
    imports: namesIn(imports),
  }));

function namesIn(cell: string): string[] {
  return [...cell.matchAll(/`([a-z./-]+)`/g)].map((match) => match[1]?.replace(/\/$/, "") ?? "");
}

/** The rooms from the lowest up, with planned rooms at their places. */
function plannedOrder(): string[] {
  const order = Object.keys(PROGRAMS["server"]?.rooms ?? {});
  for (const { feature, room, after } of rows) {
    if (after === undefined) continue;
    const at = order.indexOf(after);
    assert.notEqual(at, -1, `${feature}: there is no room ${after}`);
    if (!order.includes(room)) order.splice(at + 1, 0, room);
  }
  return order;
}

test("every planned feature of the server is in a room that may import what it needs", () => {
  assert.ok(rows.length > 10, `${rows.length} rows were read`);
  const order = plannedOrder();
  for (const { feature, room, imports } of rows) {
    assert.ok(order.includes(room), `${feature}: ${room} has no place`);
    for (const other of imports.filter((name) => order.includes(name)))
      if (other !== room)
        assert.ok(order.indexOf(other) < order.indexOf(room), `${feature}: ${other} is not before ${room}`);
    for (const other of imports) assert.ok(order.includes(other), `${feature}: there is no room ${other}`);
  }
});

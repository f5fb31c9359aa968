/**
 * Which names the API's schemas have, and which tables are refused.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type Endpoint, endpoint, json } from "./endpoint.ts";
import { endpointList, endpoints } from "./endpoints.ts";
import { type TSchema, Type } from "./schema.ts";
import { nameShapes, shapes } from "./shapes.ts";

const Thing = Type.Object({ id: Type.String() });

const list = (schema: TSchema, query?: TSchema): Endpoint =>
  endpoint({
    method: "GET",
    path: "/v1/things",
    family: "things",
    summary: "List things",
    access: "anyKey",
    ...(query === undefined ? {} : { query }),
    answers: { 200: json(schema) },
  });
const named = (exports: Record<string, unknown>, table: Record<string, Endpoint>) =>
  nameShapes([{ ...exports, thingEndpoints: table }], Object.entries(table));

test("every body, query and answer of named fields has a name", () => {
  for (const [name, { query, body, answers }] of endpointList) {
    const schemas: unknown[] = [query, body?.kind === "json" ? body.schema : undefined];
    for (const answer of Object.values(answers)) if (answer.kind === "json") schemas.push(answer.schema);
    for (const schema of schemas)
      if (typeof schema === "object" && schema !== null && "properties" in schema)
        assert.notEqual(shapes.nameOf(schema), undefined, name);
  }
});

test("a query that several endpoints have is named after none of them", () => {
  const { listMeters, listWebhooks, listInvoices, listApiKeys } = endpoints;
  assert.deepEqual(
    [listMeters, listWebhooks, listInvoices, listApiKeys].map(({ query }) => shapes.nameOf(query)),
    ["PageQuery", "PageQuery", "TenantPageQuery", "TenantPageQuery"],
  );
});

test("an exported schema has the name of its export, in copies too; another is named after its endpoint", () => {
  const { nameOf, byName } = named({ Thing }, { listThings: list(Thing, Type.Object({ all: Type.Boolean() })) });
  assert.equal(nameOf(Type.Object({ id: Type.String() })), "Thing");
  assert.deepEqual([...byName.keys()], ["Thing", "ListThingsQuery"]);
});

test("what is neither a schema nor exported in Pascal case has no name", () => {
  const { byName } = named({ Thing, STATES: { type: "on" }, thing: Type.Object({}), Other: "text" }, {});
  assert.deepEqual([...byName.keys()], ["Thing"]);
});

test("two names of one schema, and two schemas of one name, are refused", () => {
  assert.throws(() => named({ Thing, Other: Type.Object({ id: Type.String() }) }, {}), /Thing and Other are the same/);
  const other = { Thing: Type.Object({ name: Type.String() }) };
  assert.throws(() => nameShapes([{ Thing }, other], []), /two schemas are called Thing/);
});

test("a schema of two endpoints without its own name is refused", () => {
  const table = { listThings: list(Thing), listOthers: list(Thing) };
  assert.throws(() => named({}, table), /ListThingsAnswer and ListOthersAnswer are the same schema/);
});

test("an endpoint of a module that is not listed is refused", () => {
  assert.throws(() => nameShapes([{ Thing }], [["listThings", list(Thing)]]), /does not list the module of listThings/);
});

/**
 * What the API's description contains besides the shapes of bodies, and what it leaves out so that typed
 * clients work.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { endpointList } from "./endpoints.ts";
import { ERRORS } from "./errors.ts";
import { openApiDocument } from "./openapi.ts";

interface Reference {
  readonly $ref?: string;
}
interface AnswerOf extends Reference {
  readonly description: string;
  readonly headers?: Record<string, unknown>;
  readonly content?: Record<string, { schema?: Record<string, unknown> }>;
}
interface OperationOf {
  readonly operationId: string;
  readonly tags: readonly string[];
  readonly parameters: readonly Reference[];
  readonly responses: Record<string, AnswerOf>;
}
interface Document {
  readonly servers: readonly { url: string }[];
  readonly tags: readonly { name: string; description: string }[];
  readonly paths: Record<string, Record<string, OperationOf>>;
  readonly components: {
    readonly schemas: Record<string, { properties: Record<string, Record<string, unknown>> }>;
    readonly responses: Record<string, AnswerOf>;
  };
}

const document = openApiDocument() as unknown as Document;

/** The component that an answer refers to; the answer's own fields win, as OpenAPI says of descriptions. */
function resolve({ $ref, ...own }: AnswerOf): AnswerOf {
  if ($ref === undefined) return own;
  const found = document.components.responses[$ref.replace("#/components/responses/", "")];
  assert.ok(found, $ref);
  return { ...found, ...own };
}

const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, { responses, ...operation }]) => ({
    path,
    method,
    ...operation,
    responses: Object.fromEntries(Object.entries(responses).map(([status, answer]) => [status, resolve(answer)])),
  })),
);
const operationOf = (id: string) => {
  const found = operations.find(({ operationId }) => operationId === id);
  assert.ok(found, id);
  return found;
};
const contentOf = (id: string, status: string) => Object.keys(operationOf(id).responses[status]?.content ?? {});

test("each endpoint is described once, and names that only old paths have are not described", () => {
  const heads = endpointList.filter(([, { hasHead }]) => hasHead).map(([name]) => `${name}Head`);
  const expected = [...endpointList.map(([name]) => name), ...heads];
  assert.deepEqual(operations.map(({ operationId }) => operationId).sort(), expected.sort());
  assert.equal(document.paths["/v1/groups"], undefined);
});

test("only snapshots are described with 501", () => {
  const described = operations.filter(({ responses }) => "501" in responses).map(({ operationId }) => operationId);
  assert.deepEqual(described.sort(), ["createSnapshot", "listSnapshots"]);
});

test("the bridge may answer anything, and GET an upgrade", () => {
  assert.deepEqual(Object.keys(operationOf("connectGet").responses["101"] ?? {}), ["description"]);
  for (const method of ["Get", "Head", "Post", "Put", "Patch", "Delete", "Options"])
    assert.deepEqual(contentOf(`connect${method}`, "default"), ["*/*"], method);
});

test("files answer HEAD without a body, and JSON for a list", () => {
  assert.deepEqual(contentOf("readFile", "200"), ["application/octet-stream", "application/json"]);
  assert.deepEqual(contentOf("readFileAt", "200"), ["application/octet-stream"]);
  const head = operationOf("readFileHead");
  assert.equal(head.method, "head");
  assert.deepEqual(
    Object.values(head.responses)
      .map(({ content }) => content)
      .filter(Boolean),
    [],
  );
  assert.ok("x-file-mode" in (head.responses["200"]?.headers ?? {}));
});

test("a refusal is text or a problem in either of its JSON types, with the headers of refusals", () => {
  const types = ["text/plain", "application/problem+json", "application/json"];
  assert.deepEqual(contentOf("getMachine", "404"), types);
  const { responses } = operationOf("getMachine");
  assert.deepEqual(Object.keys(responses["404"]?.headers ?? {}), ["x-request-id", "x-error-code"]);
  assert.ok("Retry-After" in (responses["429"]?.headers ?? {}));
});

test("a refusal's answer is described once for each status, and an operation says which of its codes it gives", () => {
  const { responses } = document.paths["/v1/machines/{id}"]?.["get"] ?? {};
  assert.deepEqual(responses?.["404"], {
    $ref: "#/components/responses/Refused404",
    description: "`not_found`: the resource does not exist, or is another tenant's",
  });
  const statuses = new Set(Object.values(ERRORS).map(({ status }) => `Refused${status}`));
  assert.deepEqual(Object.keys(document.components.responses).sort(), [...statuses].sort());
});

test("every answer has the request id, an answer to a key its rate limit, a page the link to the next", () => {
  for (const { operationId, path, responses } of operations) {
    for (const [status, { headers = {} }] of Object.entries(responses)) {
      if (path.includes("/connect/") && (status === "101" || status === "default")) continue;
      assert.ok("x-request-id" in headers, `${operationId} ${status}`);
    }
  }
  const list = operationOf("listMachines").responses["200"]?.headers ?? {};
  for (const name of ["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "Link"])
    assert.ok(name in list, name);
  assert.ok(!("RateLimit-Limit" in (operationOf("getHealth").responses["200"]?.headers ?? {})));
});

test("every POST with an API key takes an Idempotency-Key, except the bridge", () => {
  for (const [name, { method, path, access }] of endpointList) {
    const takes = operationOf(name).parameters.some(({ $ref }) => $ref === "#/components/parameters/IdempotencyKey");
    const isOfNodes = path === "/v1/nodes/register" || path === "/v1/nodes/{id}/heartbeat";
    assert.equal(takes, method === "POST" && !path.includes("/connect/") && !isOfNodes && access !== "public", name);
  }
});

test("the document names a server, and describes every tag", () => {
  assert.ok(document.servers.length > 0);
  for (const { name, description } of document.tags) assert.ok(description.length > name.length, name);
});

test("shapes of the specification and of every family are components, and used", () => {
  const text = JSON.stringify(document);
  const specified = [
    "CommandSpec",
    "CreateVolumeRequest",
    "DeployStrategy",
    "EnvVar",
    "HealthCheckType",
    "VolumeMount",
    "FileEntry",
  ];
  const records = ["AuditEntry", "Invoice", "TenantEvent", "PlacementExplanation", "VolumeInfo", "WebhookInfo"];
  for (const name of [...specified, ...records]) {
    assert.ok(name in document.components.schemas, name);
    assert.ok(text.includes(`"#/components/schemas/${name}"`), name);
  }
});

test("a strategy names its kind in a field that tells generated clients which schema it has", () => {
  const { DeployStrategy: strategy, ...others } = document.components.schemas as never as Record<string, Tagged>;
  assert.ok(strategy);
  const { propertyName, mapping } = strategy.discriminator;
  assert.deepEqual(
    strategy.anyOf.map(({ $ref }) => $ref),
    Object.values(mapping),
  );
  for (const [kind, $ref] of Object.entries(mapping))
    assert.deepEqual(others[$ref.replace("#/components/schemas/", "")]?.properties[propertyName]?.enum, [kind]);
});

interface Tagged {
  readonly discriminator: { readonly propertyName: string; readonly mapping: Readonly<Record<string, string>> };
  readonly anyOf: readonly { readonly $ref: string }[];
  readonly properties: Readonly<Record<string, { readonly enum?: readonly string[] }>>;
}

test("a machine's state is a string whose description lists the known values without closing the list", () => {
  const { type, description, ...rest } = document.components.schemas["MachineInfo"]?.properties["state"] ?? {};
  assert.equal(type, "string");
  for (const state of ["creating", "started", "stopped", "error"]) assert.ok(String(description).includes(state));
  assert.equal(rest["enum"], undefined);
});

test("exec declares one type of answer, so that clients need no cast", () => {
  for (const id of ["exec", "execInSession"]) assert.deepEqual(contentOf(id, "200"), ["application/json"]);
  assert.deepEqual(contentOf("execStream", "200"), ["text/event-stream"]);
});

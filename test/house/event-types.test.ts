/**
 * Keeps the table of event types equal to what the programs write. The compiler checks that a writer's data
 * fits its type (`NewEvent`).
 */
import assert from "node:assert/strict";
import { glob, readFile } from "node:fs/promises";
import { test } from "node:test";
import { EVENTS, type EventType, type NewEvent, matchesType, printEvent } from "@flotilla/contract/event-types";

const ROOT = new URL("../../", import.meta.url);
/** The delivery that tests a webhook is not an event: nothing records it. */
const NO_EVENT = "webhook.test";

async function typesInPrograms(): Promise<ReadonlySet<string>> {
  const types = new Set<string>();
  let count = 0;
  for await (const path of glob("{server,node}/src/**/*.ts", { cwd: ROOT })) {
    if (path.endsWith(".test.ts")) continue;
    count += 1;
    const code = await readFile(new URL(path, ROOT), "utf8");
    for (const [, type = ""] of code.matchAll(/"((?:machine|webhook|tenant|app|instance|package)\.[a-z][A-Za-z]*)"/g))
      types.add(type);
  }
  assert.ok(count > 300, `${count} files were read`);
  return types;
}

test("each type of event is written somewhere, and only types of the table are", async () => {
  const written = await typesInPrograms();
  assert.deepEqual([...written].filter((type) => type !== NO_EVENT).sort(), Object.keys(EVENTS).sort());
});

/** Data with each value of each enumeration. */
function examplesOf(properties: Readonly<Record<string, object>>): Readonly<Record<string, unknown>>[] {
  let examples: Record<string, unknown>[] = [{}];
  for (const [name, schema] of Object.entries(properties)) {
    const { type, enum: values } = schema as { readonly type: string; readonly enum?: readonly string[] };
    const plain = type === "string" ? "a text" : type === "boolean" ? true : 3;
    examples = (values ?? [plain]).flatMap((value) => examples.map((example) => ({ ...example, [name]: value })));
  }
  return examples;
}

test("each type prints one line from data of its schema", () => {
  for (const [type, { data }] of Object.entries(EVENTS)) {
    const messages = examplesOf(data.properties).map((example) => {
      const { message } = printEvent({ type, data: example } as NewEvent);
      assert.match(message, /^[^\n]{6,}$/, type);
      assert.doesNotMatch(message, /undefined|NaN|\[object/, type);
      return message;
    });
    if (type === "machine.memoryLost") assert.equal(new Set(messages).size, 5, "each cause has its sentence");
  }
});

test("a pattern matches one type, or those that begin with a subject", () => {
  const types = Object.keys(EVENTS) as EventType[];
  const matched = (...patterns: string[]) => types.filter((type) => matchesType(type, patterns));
  assert.deepEqual(matched("machine.start"), []);
  assert.deepEqual(matched("machine.started", "tenant.*"), [
    "machine.started",
    "tenant.budgetUsed",
    "tenant.egressUsed",
  ]);
  assert.deepEqual(matched("webhook.*"), ["webhook.disabled"]);
  assert.deepEqual(matched("mach.*"), []);
});

/**
 * The commands of the documents run as printed, one document after the other, against one Flotilla with its
 * default settings and machines of the fake driver. test/house/documents.test.ts finds those that do not run.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { type DocumentHost, startDocumentHost } from "../../test/support/document-host.ts";
import { blocksOf, documents, judge } from "../../test/support/documents.ts";
import { enterWorld, namespacesSkipReason } from "../../test/support/namespaces.ts";

if (namespacesSkipReason === false) enterWorld(fileURLToPath(import.meta.url));
const options = { skip: namespacesSkipReason };
let host: DocumentHost | null = null;

before(async () => {
  if (namespacesSkipReason === false)
    host = await startDocumentHost(() => Promise.resolve({ FLOTILLA_DRIVER: "fake" }));
});
after(async () => await host?.[Symbol.asyncDispose]());

for (const file of await documents()) {
  const blocks = blocksOf(file).blocks.filter((block) => judge(block) === "run");
  if (blocks.length === 0) continue;
  test(`the commands of ${file} run as printed`, options, async () => {
    const ran = await host?.run(blocks);
    assert.equal(ran?.code, 0, ran?.said.slice(-4_000));
  });
}

test("a command that fails fails its document, and its block is named", options, async () => {
  const lines = ["./flotilla machine get nothing", "true"];
  const ran = await host?.run([{ file: "a.md", line: 7, info: "sh", lines }]);
  assert.equal(ran?.code, 1);
  assert.match(ran?.said ?? "", /--- a\.md:7\nerror: /);
});

/**
 * Every block of code in the documents says what it is: commands that `cli/test/documents.test.ts` runs,
 * commands that it does not run, for a reason, or something else.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { blocksOf, documents, judge, parse } from "../support/documents.ts";

const files = await documents();

test("every block of the documents is run, excused, or no command", () => {
  const all = files.map(blocksOf);
  const blocks = all.flatMap((each) => each.blocks);
  const judged = blocks.map((block) => [`${block.file}:${block.line}`, judge(block)] as const);
  const of = (judgement: string): number => judged.filter(([, each]) => each === judgement).length;
  assert.ok(of("run") > 20 && of("excused") > 10 && of("no command") > 5, "the documents were read");
  assert.deepEqual(
    judged.filter(([, each]) => !["run", "excused", "no command"].includes(each)),
    [],
  );
  assert.deepEqual(
    all.flatMap((each) => each.unfenced),
    [],
    "code has a fence: ```sh for commands",
  );
});

test("a block without a reason, a command under another name, and code without a fence are found", () => {
  const judgeOne = (info: string, line = "x") => judge({ info, lines: [line] });
  assert.equal(judgeOne("sh", "./flotilla up"), "run");
  assert.equal(judgeOne("sh not run: it stays in the foreground"), "excused");
  assert.match(judgeOne("sh not run"), /neither/);
  assert.match(judgeOne("sh not run: no"), /neither/);
  assert.match(judgeOne(""), /names no language/);
  assert.match(judgeOne("text", "./flotilla machine ls"), /is a command/);
  assert.match(judgeOne("console", "$ ls"), /is a command/);
  assert.equal(judgeOne("yaml", "a: 1"), "no command");
  const { blocks, unfenced } = parse("a.md", "text\n\n    indented\n\n  ```sh\n  ls\n  ```\n\n```sh\nopen\n");
  assert.deepEqual(blocks, [{ file: "a.md", line: 5, info: "sh", lines: ["ls"] }]);
  assert.deepEqual(unfenced, ["a.md:3", "a.md:9"]);
});

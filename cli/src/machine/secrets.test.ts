/**
 * Where the secret variables of a new machine are read from, and which inputs are refused.
 */
import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { test } from "node:test";
import type { World } from "../call.ts";
import { readSecrets } from "./secrets.ts";

const read = (given: readonly string[], { environment = {}, input = "" } = {}) =>
  readSecrets(
    { environment, streams: { input: Readable.from([Buffer.from(input)]) as World["streams"]["input"] } },
    given,
  );

test("a secret comes from the environment, from standard input or from the command line", async () => {
  const environment = { TOKEN: "-", OTHER: "not asked for" };
  assert.deepEqual(await read(["TOKEN", "KEY=-", "A=b=c", "EMPTY="], { environment, input: "line\nend\n" }), {
    TOKEN: "-",
    KEY: "line\nend",
    A: "b=c",
    EMPTY: "",
  });
});

test("a secret without a value, without a name or with input that is not text is refused without its value", async () => {
  await assert.rejects(read(["ABSENT"]), /environment has no ABSENT/);
  await assert.rejects(read(["=value"]), /^Failure: a --secret has no name$/);
  await assert.rejects(read(["A=-", "B=-"]), /holds one secret/);
  await assert.rejects(
    readSecrets(
      { environment: {}, streams: { input: Readable.from([Buffer.of(0xff)]) as World["streams"]["input"] } },
      ["A=-"],
    ),
    /not UTF-8/,
  );
});

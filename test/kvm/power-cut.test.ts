/**
 * The power of a host that runs all of Flotilla is cut while it creates, writes and bills: `flotilla up` with
 * its database, server, node and a machine under KVM, on a disk that loses what was not flushed.
 *
 *     FLOTILLA_CUTS=5 npm test -- test/kvm/power-cut.test.ts      # more cuts
 */
import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { after, before, describe, test } from "node:test";
import { pause, until } from "../support/until.ts";
import type { Fact } from "./acknowledged.ts";
import { EmulatedHost, skipReasonUnflushed } from "./emulated-host.ts";

const CUTS = Number(process.env["FLOTILLA_CUTS"] ?? 1);
const UP_DEADLINE_MS = 900_000;
/** How many changes are acknowledged before a cut, at least. */
const FACTS_MIN = 16;
const FACTS_MORE = 12;
/** Up to this time after the last of them, so that the cut comes in the middle of anything. */
const MOMENT_MS = 2_000;
const DATA = "FLOTILLA_DATA_DIR=/var/lib/flotilla";
const UP = `${DATA} FLOTILLA_LOG_LEVEL=warn setsid ./flotilla up >>/var/log/up.log 2>&1 & echo begun`;
const CLIENT = `${DATA} FLOTILLA_URL=http://127.0.0.1:8080`;

describe("a power cut of a host that runs all of Flotilla", { skip: skipReasonUnflushed }, () => {
  let host: EmulatedHost;

  before(async () => {
    host = await EmulatedHost.make({ forgetsUnflushed: true });
    await host.boot();
  });
  after(() => host[Symbol.asyncDispose]());

  test("the emulated disk loses what was written to it and not flushed", async () => {
    const write = (from: string) => `dd if=${from} of=/var/lib/probe bs=64k count=1 oflag=direct conv=notrunc`;
    await host.must(`dd if=/dev/zero of=/var/lib/probe bs=64k count=1 && sync && ${write("/dev/urandom")}`);
    await host.cutPower();
    await host.boot();
    assert.match(await host.must("tr -d '\\0' </var/lib/probe | wc -c"), /^0$/m);
  });

  test("everything acknowledged before the cut is there, and the machine that ran runs again", async () => {
    const facts: Fact[] = [];
    await host.must(UP);
    for (let cut = 1; cut <= CUTS; cut += 1) {
      const wanted = facts.length + FACTS_MIN + randomInt(FACTS_MORE);
      const making = collect(host, facts);
      await until(() => making.hasEnded() || facts.length >= wanted, {
        what: "the changes",
        deadlineMs: UP_DEADLINE_MS,
      });
      await pause(randomInt(MOMENT_MS));
      if (making.hasEnded()) throw new Error(`${await making.end}\n${await lastWords(host)}`);
      await host.cutPower();
      await making.end;
      await host.boot();
      await host.must(UP);
      const encoded = Buffer.from(JSON.stringify(facts)).toString("base64");
      const checking = `FACTS=${encoded} ${CLIENT} node test/kvm/acknowledged.ts check`;
      const { code, output } = await host.run(checking, UP_DEADLINE_MS);
      assert.equal(code, 0, `after cut ${cut} and ${facts.length} changes:\n${output}\n${await lastWords(host)}`);
      for (const line of ["audit verify --all", "billing verify"])
        await host.must(
          `${CLIENT} FLOTILLA_API_KEY="$(cat /var/lib/flotilla/admin.key)" ./flotilla ${line}`,
          UP_DEADLINE_MS,
        );
    }
    const kinds = new Set(facts.map(({ kind }) => kind));
    for (const kind of ["runs", "created", "deleted", "file", "key", "revoked", "invoice"] satisfies Fact["kind"][])
      assert.ok(kinds.has(kind), `no ${kind} was acknowledged`);
  });
});

/** Makes changes until the host ends, and adds each that was acknowledged. */
function collect(host: EmulatedHost, facts: Fact[]) {
  let [rest, hasEnded] = ["", false];
  const take = (piece: string): void => {
    const lines = (rest + piece).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line.startsWith('{"kind":')) facts.push(JSON.parse(line) as Fact);
  };
  const end = host
    .run(`${CLIENT} node test/kvm/acknowledged.ts make`, UP_DEADLINE_MS, take)
    .then(
      ({ output }) => output,
      (error: unknown) => String(error),
    )
    .finally(() => (hasEnded = true));
  return { end, hasEnded: () => hasEnded };
}

const lastWords = async (host: EmulatedHost): Promise<string> => (await host.run("tail -n 40 /var/log/up.log")).output;

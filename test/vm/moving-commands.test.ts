/**
 * A real machine moves between two real nodes while it runs and commands and terminals run in it: their
 * callers do not notice.
 */
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { after, before, describe, test } from "node:test";
import { CommandStream, counting, EchoTerminal, OPEN_BYTES_MAX } from "../support/command-stream.ts";
import { sharedDatabaseUrl } from "../support/database.ts";
import { drawn } from "../support/drawn.ts";
import { type Flotilla, startFlotilla } from "../support/flotilla.ts";
import { endedMove, moveLive, requestMove, restoredMachine } from "../support/real-moves.ts";
import { until } from "../support/until.ts";
import { serveUpgrades, Upgraded } from "../support/upgraded.ts";
import { skipReason } from "./vm-fixture.ts";

const LONG = { deadlineMs: 120_000, everyMs: 50 };
/** There and back. */
const MOVES = [1, 0] as const;
const WORKLOAD = "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.05; done";
/** How many of what interrupts a move a run tests. */
const INTERRUPTIONS_PER_RUN = 2;

// Before the hooks: it ends after the tests of the file.
const databaseUrl = skipReason === false ? await sharedDatabaseUrl() : "";

describe("a machine that moves while commands run in it", { skip: skipReason }, () => {
  let flotilla: Flotilla;
  let id: string;

  before(async () => {
    flotilla = await startFlotilla({ servers: 2, nodes: 2, driver: "qemu", databaseUrl });
    const resources = { cpus: 1, memoryMb: 128, diskGb: 1 };
    const ports = [{ port: 80 }];
    id = await restoredMachine(flotilla, { command: ["sh", "-c", WORKLOAD], resources, ports });
    await serveUpgrades(flotilla, id, 80);
    if ((await flotilla.get(id)).nodeId !== "node-0") await move(0);
  });
  after(() => flotilla?.[Symbol.asyncDispose]());

  const post = (path: string, body: object): Promise<Response> => {
    const { url, key } = flotilla.client();
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    return fetch(`${url}/v1/machines/${id}/${path}`, { method: "POST", headers, body: JSON.stringify(body) });
  };
  const stream = async (command: string): Promise<CommandStream> => {
    const response = await post("exec/stream?output=b64", { command, timeoutSeconds: 600 });
    assert.equal(response.status, 200);
    return new CommandStream(response);
  };
  const begin = (to: number): Promise<string> => requestMove(flotilla, id, `node-${to}`, 1);
  const end = (operation: string) => endedMove(flotilla, operation);
  const move = (to: number) => moveLive(flotilla, id, `node-${to}`, 1);

  /**
   * Everything of this kind that runs in the machine is opened through the first server; moves are requested
   * at the second.
   */
  class Callers {
    readonly numbers: CommandStream;
    readonly terminal: EchoTerminal;
    /** One that returns what it is sent, and one that sends. */
    readonly upgraded: readonly Upgraded[];
    readonly #gate: string;

    private constructor(numbers: CommandStream, terminal: EchoTerminal, upgraded: readonly Upgraded[], gate: string) {
      this.numbers = numbers;
      this.terminal = terminal;
      this.upgraded = upgraded;
      this.#gate = gate;
    }

    /** The numbers end with `finish`, or once there is a file at `gate`. */
    static async begin(gate = `/tmp/enough-${randomBytes(4).toString("hex")}`): Promise<Callers> {
      const numbers = await stream(counting(gate));
      const { url, key } = flotilla.client();
      const terminal = await EchoTerminal.open(`${url}/v1/machines/${id}/exec/interactive?cmd=/bin/sh`, key ?? "");
      const open = (where: string) => Upgraded.open(flotilla, { id, port: 80, path: where });
      return new Callers(numbers, terminal, [await open("/echo"), await open("/count")], gate);
    }

    /** Both get more than was on its way. */
    async haveMore(): Promise<void> {
      const { numbers, terminal } = this;
      const before = { printed: numbers.stdout.length, echoed: terminal.receivedBytes };
      await until(
        () => numbers.stdout.length > before.printed + 1000 && terminal.receivedBytes > before.echoed + OPEN_BYTES_MAX,
        { what: `more output; ${terminal.closed} ${numbers.exit}`, ...LONG },
      );
      for (const each of this.upgraded) await each.haveMore(300_000);
    }

    /** Ends both, and compares all that they printed. */
    async finish(): Promise<void> {
      const { sent, received } = await this.terminal.finish();
      assert.equal(received, sent);
      for (const each of this.upgraded) await each.finish();
      await flotilla.exec(id, `touch ${this.#gate}`);
      await this.numbers.ended;
      assert.match(this.numbers.exit, /"?exit_?[cC]ode"?:\s*3/);
      const lines = this.numbers.stdout.trimEnd().split("\n");
      assert.ok(
        lines.every((line, index) => line === String(index + 1)),
        "every number once, in order",
      );
    }
  }

  /** The numbers of the lines of the workload's log, while it is followed. */
  async function follow(signal: AbortSignal): Promise<() => readonly number[]> {
    const { url, key } = flotilla.client();
    const headers = { authorization: `Bearer ${key}` };
    const { body } = await fetch(`${url}/v1/machines/${id}/logs?follow=true&tail=1`, { headers, signal });
    const log = { text: "" };
    const read = async (): Promise<void> => {
      for await (const chunk of body as unknown as AsyncIterable<Uint8Array>) log.text += Buffer.from(chunk).toString();
    };
    read().catch(() => undefined);
    return () => [...log.text.matchAll(/^data: line (\d+)$/gm)].map(([, number]) => Number(number));
  }

  test("loses and repeats no byte of commands and terminals in two moves", async () => {
    const followed = new AbortController();
    const numbers = await follow(followed.signal);
    const input = randomBytes(600_000).toString("hex");
    const fed = post("exec", {
      command: "touch /tmp/fed; until [ -e /tmp/go ]; do sleep 0.1; done; sha256sum",
      stdin: input,
      timeoutSeconds: 600,
    });
    await until(() => flotilla.exec(id, "ls /tmp/fed"), { what: "the command with input", ...LONG });
    const callers = await Callers.begin("/tmp/go");
    for (const to of MOVES) {
      await callers.haveMore();
      await move(to);
    }
    await callers.haveMore();
    await callers.finish();
    const printed = Number((await flotilla.client().get(`/v1/machines/${id}/logs?tail=1`)).text.match(/\d+/)?.[0]);
    await until(() => (numbers().at(-1) ?? 0) > printed, { what: `line ${printed} of the log`, ...LONG });
    followed.abort();
    const lines = numbers();
    assert.deepEqual(
      lines,
      lines.map((_line, index) => (lines[0] ?? 0) + index),
    );
    const { stdout } = (await (await fed).json()) as { stdout: string };
    assert.equal(stdout.slice(0, 64), createHash("sha256").update(input).digest("hex"));
  });

  const place = async () => Number(((await flotilla.get(id)).nodeId ?? "").slice("node-".length));
  const reached = (operation: string, step: number) =>
    until(
      async () => (await flotilla.client().get(`/v1/operations/${operation}`)).json.steps[step].status !== "pending",
      { what: `step ${step}`, ...LONG, everyMs: 5 },
    );

  /** Kills an agent once a step has begun. */
  const kill = (who: "source" | "target", step: number) => async () => {
    const callers = await Callers.begin();
    await callers.haveMore();
    const from = await place();
    const operation = await begin(1 - from);
    const victim = who === "source" ? from : 1 - from;
    await reached(operation, step);
    await flotilla.nodes[victim]?.kill();
    await flotilla.startNode(victim);
    const done = await end(operation);
    assert.equal(done.status, "succeeded", `${done.error} ${JSON.stringify(done.steps)}`);
    await callers.haveMore();
    await callers.finish();
    assert.equal(await place(), 1 - from);
  };

  async function cancel(): Promise<void> {
    const callers = await Callers.begin();
    await callers.haveMore();
    const from = await place();
    const operation = await begin(1 - from);
    await reached(operation, 0);
    // Nothing arrives there any more.
    flotilla.nodes[1 - from]?.signal("SIGSTOP");
    try {
      assert.equal((await flotilla.client(1).post(`/v1/operations/${operation}/cancel`)).status, 202);
      await callers.haveMore();
    } finally {
      flotilla.nodes[1 - from]?.signal("SIGCONT");
    }
    await end(operation);
    await callers.finish();
    assert.equal(await place(), from);
  }

  async function killServer(): Promise<void> {
    const callers = await Callers.begin();
    await callers.haveMore();
    const from = await place();
    const operation = await begin(1 - from);
    await reached(operation, 1);
    await flotilla.servers[1]?.kill();
    assert.equal((await end(operation)).status, "succeeded");
    await flotilla.startServer(1);
    await callers.haveMore();
    await callers.finish();
  }

  // Steps by their number. Where the nodes can, memory is sent before the machine is paused; then steps 1 to
  // 3 take milliseconds.
  const INTERRUPTIONS = {
    "the same when the source agent is killed in step 0 or later": kill("source", 0),
    "the same when the target agent is killed in step 0 or later": kill("target", 0),
    "the same when the source agent is killed in step 1 or later": kill("source", 1),
    "the same when the target agent is killed in step 1 or later": kill("target", 1),
    "the same when the target agent is killed in step 4 or later": kill("target", 4),
    "the same where the machine was, when the move is canceled": cancel,
    "the same when the server that moves the machine is killed": killServer,
  };
  for (const [name, interrupt] of drawn(Object.entries(INTERRUPTIONS), INTERRUPTIONS_PER_RUN)) test(name, interrupt);
});

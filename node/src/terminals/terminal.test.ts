/**
 * Kept terminals with a scripted program, and clients that vanish, come back, take over and read.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type Clock, endOfTurn, systemClock } from "@flotilla/base/clock";
import type { ExecExit, LinkError } from "@flotilla/contract/link/link";
import type { ExecResumed } from "@flotilla/contract/link/streams";
import { TERMINAL_KEPT_MS } from "@flotilla/contract/limits";
import fc from "fast-check";
import { scriptedExec } from "../../test/support/scripted-exec.ts";
import { RING_BYTES } from "./output-ring.ts";
import { Terminal, type TerminalClient } from "./terminal.ts";
import { Terminals, TERMINALS_MAX } from "./terminals.ts";

/** A clock whose timers fire when the test says so. */
function manualClock(): { readonly clock: Clock; pass(ms: number): void; readonly timers: readonly number[] } {
  let now = 0;
  const timers = new Set<{ readonly at: number; readonly fire: () => void }>();
  const clock: Clock = {
    ...systemClock,
    monotonic: () => now,
    timer: (ms, fire) => {
      const timer = { at: now + ms, fire };
      timers.add(timer);
      return { cancel: () => void timers.delete(timer) };
    },
  };
  const pass = (ms: number): void => {
    now += ms;
    for (const timer of [...timers]) {
      if (timer.at > now) continue;
      timers.delete(timer);
      timer.fire();
    }
  };
  return {
    clock,
    pass,
    get timers() {
      return [...timers].map(({ at }) => at);
    },
  };
}

class Client implements TerminalClient {
  isBlocked = false;
  readonly positions: ExecResumed[] = [];
  readonly pieces: Buffer[] = [];
  exited: ExecExit | null = null;
  ended: LinkError | null | undefined = undefined;

  position(position: ExecResumed): void {
    this.positions.push(position);
  }

  output(piece: Buffer): void {
    this.pieces.push(Buffer.from(piece));
  }

  exit(exit: ExecExit): void {
    this.exited = exit;
  }

  end(failure: LinkError | null): void {
    this.ended = failure;
  }

  get text(): string {
    return Buffer.concat(this.pieces).toString();
  }
}

interface BeginOptions {
  readonly timeoutMs?: number;
  readonly continuesElsewhere?: () => boolean;
  readonly onGone?: () => void;
}

function begin({ timeoutMs, continuesElsewhere = () => false, onGone }: BeginOptions = {}) {
  const { clock, pass, timers } = manualClock();
  const said: string[] = [];
  const script = scriptedExec(() => said.push("kill"));
  const exec = { ...script.exec, release: () => void said.push("release") };
  const terminal = new Terminal({
    ...{ clock, exec, elapsedMs: 0, timeoutMs: timeoutMs ?? null, continuesElsewhere },
    offsets: { stdoutBytes: 0, stdinBytes: 0 },
    onSilent: () => () => undefined,
    onGone: () => {
      said.push("gone");
      onGone?.();
    },
  });
  return { ...script, terminal, said, pass, timers };
}

const numbered = (lines: number): Buffer =>
  Buffer.from(Array.from({ length: lines }, (_, at) => `line ${at}\n`).join(""));

test("a client that vanishes at any moment and comes back gets each byte once, in order", async () => {
  const output = numbered(60_000);
  const cut = fc.record({
    delivered: fc.double({ min: 0, max: 1, noNaN: true }),
    pieces: fc.integer({ min: 1, max: 9 }),
  });
  await fc.assert(
    fc.asyncProperty(
      fc.array(cut, { minLength: 2, maxLength: 12 }),
      fc.integer({ min: 7_000, max: 65_536 }),
      async (cuts, size) => {
        const { terminal, stdout, exiting, pass } = begin();
        let at = 0;
        const received: Buffer[] = [];
        let offset = 0;
        const print = async (count: number): Promise<void> => {
          for (let each = 0; each < count && at < output.length && !stdout.isPaused(); each += 1, at += size)
            stdout.write(output.subarray(at, at + size));
          await endOfTurn();
        };
        /** What was on its way when the connection broke is lost, and is not acknowledged. */
        const take = (client: Client, share: number): void => {
          const arrived = Buffer.concat(client.pieces);
          received.push(arrived.subarray(0, Math.floor(arrived.length * share)));
          offset += Math.floor(arrived.length * share);
        };
        for (const { delivered, pieces } of cuts) {
          const client = new Client();
          const place = terminal.attach(client, offset);
          assert.equal(client.positions[0]?.stdoutBytes, offset);
          await print(pieces);
          take(client, delivered);
          terminal.lost(place);
          await print(3);
          pass(TERMINAL_KEPT_MS - 1);
        }
        const last = new Client();
        const place = terminal.attach(last, offset);
        while (at < output.length || stdout.readableLength > 0) {
          await print(3);
          terminal.acknowledge(place, offset + Buffer.concat(last.pieces).length);
          await endOfTurn();
        }
        exiting.resolve({ exitCode: 3 });
        await endOfTurn();
        take(last, 1);
        assert.ok(Buffer.concat(received).equals(output), "every byte once");
        assert.equal(last.exited?.exitCode, 3);
      },
    ),
    { numRuns: 25 },
  );
});

test("a program whose client does not acknowledge is paused, and runs on with what it acknowledges", async () => {
  const { terminal, stdout } = begin();
  const client = new Client();
  const place = terminal.attach(client, 0);
  for (let count = 0; count < 40; count += 1) stdout.write(Buffer.alloc(16_384, "x"));
  await endOfTurn();
  assert.ok(stdout.isPaused());
  assert.equal(client.text.length, RING_BYTES);
  terminal.acknowledge(place, 20_000);
  await endOfTurn();
  assert.ok(client.text.length > RING_BYTES && client.text.length < RING_BYTES + 2 * 20_000);
  terminal.lost(place);
  await endOfTurn();
  assert.ok(stdout.isPaused(), "no client reads it meanwhile");
});

test("after a minute without a client the program is ended, and a client that comes later learns it", async () => {
  const { terminal, said, pass } = begin();
  const client = new Client();
  terminal.lost(terminal.attach(client, 0));
  pass(TERMINAL_KEPT_MS - 1);
  const back = new Client();
  const place = terminal.attach(back, 0);
  pass(2 * TERMINAL_KEPT_MS);
  assert.deepEqual(said, [], "an attached client may be silent for as long as it likes");
  terminal.lost(place);
  const reader = new Client();
  assert.ok(terminal.watch(reader, 0));
  pass(TERMINAL_KEPT_MS);
  assert.deepEqual(said, ["kill", "release", "gone"]);
  assert.match(String(reader.ended?.message), /ended with its client/);
});

test("the end of a program waits for its client, and its client's last message ends the terminal", async () => {
  const { terminal, said, stdout, exiting, pass, timers } = begin({ timeoutMs: 3_600_000 });
  terminal.lost(terminal.attach(new Client(), 0));
  stdout.write("last");
  await endOfTurn();
  exiting.resolve({ exitCode: 7 });
  await endOfTurn();
  pass(TERMINAL_KEPT_MS / 2);
  const back = new Client();
  const place = terminal.attach(back, 2);
  assert.deepEqual([back.text, back.exited?.exitCode], ["st", 7]);
  terminal.done(place);
  assert.deepEqual(said, ["release", "gone"]);
  assert.deepEqual([back.ended, timers], [null, []]);
});

test("a client that ends its terminal ends the program", () => {
  const { terminal, said, timers } = begin();
  terminal.done(terminal.attach(new Client(), 0));
  assert.deepEqual(said, ["kill", "release", "gone"]);
  assert.deepEqual(timers, []);
});

test("a second client takes the writing over, and the first learns it and changes nothing any more", async () => {
  const { terminal, stdin, said } = begin();
  const [first, second] = [new Client(), new Client()];
  const before = terminal.attach(first, 0);
  terminal.type(before, Buffer.from("a"));
  const after = terminal.attach(second, 0);
  assert.equal(first.ended?.code, "replaced");
  terminal.type(before, Buffer.from("x"));
  terminal.lost(before);
  terminal.done(before);
  terminal.type(after, Buffer.from("b"));
  await endOfTurn();
  assert.equal(String(stdin.read()), "ab");
  assert.deepEqual(said, []);
  assert.equal(second.positions[0]?.stdinBytes, 1);
});

test("input that the machine takes without a client is acknowledged to the next", async () => {
  const { terminal } = begin();
  const place = terminal.attach(new Client(), 0);
  terminal.type(place, Buffer.from("abc"));
  terminal.lost(place);
  await endOfTurn();
  const back = new Client();
  terminal.attach(back, 0);
  assert.deepEqual(back.positions, [{ stdinBytes: 3, stdoutBytes: 0 }, { stdinBytes: 3 }]);
});

test("a reader types, resizes and ends nothing; a slow one misses output, learns where, and slows no other", async () => {
  const { terminal, stdin, stdout } = begin();
  const [writer, reader] = [new Client(), new Client()];
  const place = terminal.attach(writer, 0);
  const reading = terminal.watch(reader, 0);
  assert.ok(reading);
  terminal.type(reading, Buffer.from("rm"));
  terminal.resize(reading, { cols: 1, rows: 1 });
  terminal.done(reading);
  terminal.acknowledge(reading, 5);
  stdout.write("seen ");
  await endOfTurn();
  reader.isBlocked = true;
  for (let at = 0; at < 3_000_000; at += 50_000) {
    stdout.write(Buffer.alloc(50_000, at / 50_000));
    await endOfTurn();
    terminal.acknowledge(place, 5 + at + 50_000);
  }
  assert.equal(Buffer.concat(writer.pieces).length, 3_000_005);
  assert.equal(reader.text, "seen ");
  reader.isBlocked = false;
  terminal.unblocked(reading);
  const from = reader.positions.at(-1)?.stdoutBytes ?? 0;
  const rest = Buffer.concat(reader.pieces).subarray(5);
  assert.ok(from > 2_800_000 && from + rest.length === 3_000_005, `${from} ${rest.length}`);
  assert.ok(rest.equals(Buffer.concat(writer.pieces).subarray(from)));
  assert.equal(stdin.readableLength, 0);
});

test("a reader that does not read gets what is kept and the end, although the terminal is gone", async () => {
  const { terminal, stdout, exiting } = begin();
  const reader = new Client();
  const place = terminal.attach(new Client(), 0);
  terminal.watch(reader, 0);
  reader.isBlocked = true;
  stdout.write("last");
  await endOfTurn();
  exiting.resolve({ exitCode: 5 });
  await endOfTurn();
  assert.equal(reader.text, "");
  terminal.done(place);
  assert.deepEqual([reader.text, reader.exited?.exitCode, reader.ended?.code], ["last", 5, "not_found"]);
});

test("a program past its time limit ends with 124; a guest that is lost says so, or is continued elsewhere", async () => {
  const limited = begin({ timeoutMs: 1_000 });
  const client = new Client();
  limited.terminal.attach(client, 0);
  limited.pass(1_000);
  limited.exiting.resolve({ exitCode: 129 });
  await endOfTurn();
  assert.equal(client.exited?.exitCode, 124);
  for (const isElsewhere of [false, true]) {
    const { terminal, exiting, said } = begin({ continuesElsewhere: () => isElsewhere });
    const attached = new Client();
    terminal.attach(attached, 0);
    exiting.reject(new Error("the channel is lost"));
    await endOfTurn();
    assert.equal(attached.ended?.code, isElsewhere ? undefined : "guest_unreachable");
    assert.deepEqual(said, isElsewhere ? ["release", "gone"] : ["kill", "release", "gone"]);
    const late = new Client();
    terminal.attach(late, 0);
    assert.equal(late.ended?.code, isElsewhere ? undefined : "guest_unreachable");
  }
});

test("a machine keeps so many terminals; one more takes the place of the one that waits longest", () => {
  const terminals = new Terminals();
  const made = Array.from({ length: TERMINALS_MAX }, (_, at) => {
    let gone = (): void => undefined;
    const begun = begin({ onGone: () => gone() });
    const terminal = terminals.add("mach-1", String(at), (onGone) => {
      gone = onGone;
      return begun.terminal;
    });
    return { ...begun, place: terminal.attach(new Client(), 0) };
  });
  assert.equal(terminals.makeRoom("mach-1"), false, "all are attached");
  assert.equal(terminals.makeRoom("mach-2"), true);
  for (const at of [4, 3]) {
    made[at]?.terminal.lost(made[at].place);
    for (const { pass } of made) pass(10);
  }
  assert.equal(terminals.makeRoom("mach-1"), true);
  assert.equal(terminals.find("mach-1", "4"), undefined);
  assert.ok(terminals.find("mach-1", "3"));
});

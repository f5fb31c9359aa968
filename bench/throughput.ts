/**
 * Throughput between host and guest: a file into a machine and out of it, and the output of a command, through the
 * API against the guest channel alone, in the same machine in the same run.
 *
 * Files are on the machine's disk. Content is random, so that zeros cannot be compressed or skipped on the way;
 * received bytes are counted. Rates are in units of 10^6 bytes.
 */
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { request as httpRequest } from "node:http";
import type { Readable, Writable } from "node:stream";
import { BULK_QUIET_MS } from "../node/src/guest/client.ts";
import type { Guest, GuestFileRequest } from "../node/src/guest/guest.ts";
import { type Above, aboveAndBelow, type UsedMs, usedNote } from "./support/above-and-below.ts";
import { sleep, timed } from "./support/clock.ts";
import { IMAGE } from "./support/flotilla.ts";
import type { Finding } from "./support/report.ts";
import { atLeast, summarize } from "./support/statistics.ts";

const FILE_BYTES = 1e9;
const OUTPUT_BYTES = 64 * 1024 * 1024;
const CHUNK_BYTES = 256 * 1024;
const PATH = "/workspace/bench.bin";
/**
 * Streams before those that are measured. QEMU translates the guest's code, and V8 compiles the programs', in the first gigabyte
 * or so; the same on both sides.
 */
const WARM_UP_STREAMS = 12;
/** A turn that takes longer has stopped: the benchmark ends with an error instead of waiting for a command's time limit. */
const TURN_MS_MAX = 60_000;
const RATE_MB_MIN = 100;
const RATIO_MIN = 0.7;

const content = randomBytes(CHUNK_BYTES);
const rateOf = (bytes: number, ms: number): number => bytes / 1e3 / ms;

async function pour(into: Writable): Promise<void> {
  for (let left = FILE_BYTES; left > 0; left -= CHUNK_BYTES)
    if (!into.write(content.subarray(0, Math.min(left, CHUNK_BYTES)))) await once(into, "drain");
  into.end();
}

async function count(from: Readable): Promise<number> {
  let bytes = 0;
  for await (const chunk of from as AsyncIterable<Buffer>) bytes += chunk.byteLength;
  return bytes;
}

function expectBytes(found: number, expected: number): void {
  if (found !== expected) throw new Error(`${found} bytes arrived, not ${expected}`);
}

interface Turns {
  readonly upMs: number[];
  readonly downMs: number[];
  readonly notes: string[];
}

/** Moves the file n times each way. */
export async function fileThroughput(n: number): Promise<Finding> {
  const { ours, bare } = await aboveAndBelow(
    (machine) => filesAbove(machine, n),
    (guest) => filesBelow(guest, n),
  );
  const [up, down, bareUp, bareDown] = [ours.upMs, ours.downMs, bare.upMs, bare.downMs].map(summarize);
  if (!up || !down || !bareUp || !bareDown) throw new Error("nothing was measured");
  const rates = [up, down, bareUp, bareDown].map(({ p50Ms }) => rateOf(FILE_BYTES, p50Ms));
  const [upRate = 0, downRate = 0, bareUpRate = 1, bareDownRate = 1] = rates;
  return {
    name: "file-throughput",
    series: [
      { what: "1 GB up, through the API", summary: up },
      { what: "1 GB down, through the API", summary: down },
      { what: "1 GB up, guest channel and bulk disk alone", summary: bareUp },
      { what: "1 GB down, guest channel and bulk disk alone", summary: bareDown },
    ],
    reaches: [
      atLeast("up", upRate, RATE_MB_MIN, "MB/s"),
      atLeast("down", downRate, RATE_MB_MIN, "MB/s"),
      atLeast("up, of the channel alone", upRate / bareUpRate, RATIO_MIN),
      atLeast("down, of the channel alone", downRate / bareDownRate, RATIO_MIN),
    ],
    setting: { image: IMAGE, size: "default", bytes: FILE_BYTES },
    notes: [...ours.notes, `channel alone: ${bareUpRate.toFixed(1)} MB/s up, ${bareDownRate.toFixed(1)} MB/s down`],
  };
}

async function filesAbove({ flotilla, id, usedMs }: Above, n: number): Promise<Turns> {
  const turns: Turns = { upMs: [], downMs: [], notes: [] };
  const { url, headers } = flotilla.access;
  const { authorization = "" } = headers;
  const send = async (method: string, body: boolean): Promise<number> => {
    const sent = httpRequest(`${url}/v1/machines/${id}/files${PATH}`, {
      method,
      headers: { authorization, ...(body ? { "content-length": FILE_BYTES } : {}) },
    });
    const answered = once(sent, "response") as Promise<[Readable & { statusCode?: number }]>;
    if (body) await pour(sent);
    else sent.end();
    const [answer] = await answered;
    if ((answer.statusCode ?? 500) >= 300) throw new Error(`${method} was answered with ${answer.statusCode}`);
    return await count(answer);
  };
  const start = await usedMs();
  for (let turn = 0; turn < n; turn++) turns.upMs.push(await timed(() => send("PUT", true)));
  const between = await usedMs();
  for (let turn = 0; turn < n; turn++)
    turns.downMs.push(await timed(async () => expectBytes(await send("GET", false), FILE_BYTES)));
  const megabytes = (n * FILE_BYTES) / 1e6;
  turns.notes.push(`up, ${usedNote(start, between, megabytes, "MB")}`);
  turns.notes.push(`down, ${usedNote(between, await usedMs(), megabytes, "MB")}`);
  return turns;
}

async function filesBelow(guest: Guest, n: number): Promise<Turns> {
  const turns: Turns = { upMs: [], downMs: [], notes: [] };
  const begin = (operation: GuestFileRequest["operation"]) =>
    guest.file({ operation, path: PATH, offset: 0, length: null, isFromEnd: false });
  // The previous host may still have been using it.
  await sleep(BULK_QUIET_MS);
  const up = async (): Promise<void> => {
    const exec = begin("write");
    exec.stdout.resume();
    exec.stderr.resume();
    await pour(exec.stdin);
    if ((await exec.exit).exitCode !== 0) throw new Error("the file was not written");
  };
  const down = async (): Promise<void> => {
    const exec = begin("read");
    exec.stderr.resume();
    const [bytes] = await Promise.all([count(exec.stdout), exec.exit]);
    if (bytes < FILE_BYTES) throw new Error("the file is incomplete");
  };
  for (let turn = 0; turn < n; turn++) turns.upMs.push(await timed(up));
  for (let turn = 0; turn < n; turn++) turns.downMs.push(await timed(down));
  return turns;
}

/** Runs a command that writes OUTPUT_BYTES, n times after those that warm up. */
export async function streamThroughput(n: number): Promise<Finding> {
  const command = ["dd", "if=/dev/zero", "bs=64k", `count=${OUTPUT_BYTES / 65_536}`];
  const { ours, bare } = await aboveAndBelow(
    ({ flotilla, id, usedMs }) =>
      warmedUp(n, usedMs, async () => {
        let bytes = 0;
        const signal = AbortSignal.timeout(TURN_MS_MAX);
        for await (const event of await flotilla.client.streamExec(id, { command }, { signal }))
          if (event.kind === "stdout") bytes += event.bytes.byteLength;
        expectBytes(bytes, OUTPUT_BYTES);
      }),
    (guest, usedMs) => {
      const request = { argv: command, cwd: null, env: {}, user: null, hasStdin: false, terminal: null };
      return warmedUp(n, usedMs, async () => {
        const exec = guest.exec({ ...request, isBackground: false });
        AbortSignal.timeout(TURN_MS_MAX).addEventListener("abort", () => exec.stdout.destroy(new Error("it stopped")));
        exec.stderr.resume();
        const [bytes] = await Promise.all([count(exec.stdout), exec.exit]);
        expectBytes(bytes, OUTPUT_BYTES);
      });
    },
  );
  const [above, below] = [summarize(ours.tookMs), summarize(bare.tookMs)];
  const [rate, bareRate] = [rateOf(OUTPUT_BYTES, above.p50Ms), rateOf(OUTPUT_BYTES, below.p50Ms)];
  return {
    name: "stream-throughput",
    series: [
      { what: "64 MiB of output, streamed through the API", summary: above },
      { what: "64 MiB of output, guest channel alone", summary: below, isBaseline: true },
    ],
    reaches: [atLeast("of the channel alone", rate / bareRate, RATIO_MIN)],
    setting: { image: IMAGE, size: "default", bytes: OUTPUT_BYTES, "streams before": WARM_UP_STREAMS },
    notes: [
      `${rate.toFixed(1)} MB/s, channel alone ${bareRate.toFixed(1)} MB/s`,
      `the first streams took ${millisecondsOf(ours.beforeMs)} ms, on the channel alone ${millisecondsOf(bare.beforeMs)} ms`,
      ours.used,
      `channel alone, ${bare.used}`,
    ],
  };
}

interface Streams {
  /** Of the streams that warm up, in their order. */
  readonly beforeMs: readonly number[];
  readonly tookMs: number[];
  readonly used: string;
}

async function warmedUp(n: number, usedMs: UsedMs, stream: () => Promise<void>): Promise<Streams> {
  const [beforeMs, tookMs]: [number[], number[]] = [[], []];
  for (let turn = 0; turn < WARM_UP_STREAMS; turn++) beforeMs.push(await timed(stream));
  const before = await usedMs();
  for (let turn = 0; turn < n; turn++) tookMs.push(await timed(stream));
  return { beforeMs, tookMs, used: usedNote(before, await usedMs(), (n * OUTPUT_BYTES) / 1e6, "MB") };
}

const millisecondsOf = (times: readonly number[]): string => times.map((ms) => ms.toFixed(0)).join(", ");

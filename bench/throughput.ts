/**
 * Throughput between host and guest: a file into a machine and out of it, and the output of a command,
 * through the API against the guest channel alone of a machine of the same kind, in turns.
 *
 * Files are on the machine's disk. Content is random, so that zeros cannot be compressed or skipped on the
 * way; received bytes are counted. Rates are in units of 10^6 bytes.
 */
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { request as httpRequest } from "node:http";
import type { Readable, Writable } from "node:stream";
import { Flotilla } from "@flotilla/sdk/client";
import { nodeFetch } from "../cli/src/node-fetch.ts";
import { BULK_QUIET_MS } from "../node/src/guest/client.ts";
import type { Guest, GuestFileRequest } from "../node/src/guest/guest.ts";
import { type Above, aboveAndBelow, takeTurns, usedNote } from "./support/above-and-below.ts";
import { sleep } from "./support/clock.ts";
import { IMAGE } from "./support/flotilla.ts";
import type { Finding } from "./support/report.ts";
import { atLeast, summarize } from "./support/statistics.ts";

const FILE_BYTES = 1e9;
const OUTPUT_BYTES = 64 * 1024 * 1024;
const CHUNK_BYTES = 256 * 1024;
const PATH = "/workspace/bench.bin";
/**
 * Streams before those that are measured. QEMU translates the guest's code, and V8 compiles the programs', in
 * the first gigabyte or so; the same on both sides.
 */
const WARM_UP_STREAMS = 12;
/**
 * A turn that takes longer has stopped: the benchmark ends with an error instead of waiting for a command's
 * time limit.
 */
const TURN_MS_MAX = 60_000;
const RATE_MB_MIN = 100;
const RATIO_MIN = 0.7;

const content = randomBytes(CHUNK_BYTES);
const rateOf = (bytes: number, ms: number): number => bytes / 1e3 / ms;

async function writeAll(into: Writable): Promise<void> {
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

/** Moves the file n times each way, both sides in turns. */
export async function fileThroughput(n: number): Promise<Finding> {
  const measured = await aboveAndBelow(async (above, below) => {
    // The agent that had the disk may still be using it.
    await sleep(BULK_QUIET_MS);
    const [ours, bare] = [filesAbove(above), filesBelow(below.guest)];
    const sides = [
      { work: ours.up, pids: above.pids },
      { work: bare.up, pids: below.pids },
      { work: ours.down, pids: above.pids },
      { work: bare.down, pids: below.pids },
    ];
    return await takeTurns(sides, { count: n, warmUps: 0, together: 1 });
  });
  const [up, bareUp, down, bareDown] = measured;
  if (!up || !down || !bareUp || !bareDown) throw new Error("nothing was measured");
  const summaries = measured.map(({ tookMs }) => summarize(tookMs));
  const [upRate = 0, bareUpRate = 1, downRate = 0, bareDownRate = 1] = summaries.map(({ p50Ms }) =>
    rateOf(FILE_BYTES, p50Ms),
  );
  const what = ["1 GB up, through the API", "1 GB up, guest channel and bulk disk alone"];
  what.push("1 GB down, through the API", "1 GB down, guest channel and bulk disk alone");
  const megabytes = (n * FILE_BYTES) / 1e6;
  return {
    name: "file-throughput",
    series: summaries.map((summary, at) => ({ what: what[at] ?? "", summary })),
    reaches: [
      atLeast("up", upRate, RATE_MB_MIN, "MB/s"),
      atLeast("down", downRate, RATE_MB_MIN, "MB/s"),
      atLeast("up, of the channel alone", upRate / bareUpRate, RATIO_MIN),
      atLeast("down, of the channel alone", downRate / bareDownRate, RATIO_MIN),
    ],
    setting: { image: IMAGE, size: "default", bytes: FILE_BYTES },
    notes: [
      `channel alone: ${bareUpRate.toFixed(1)} MB/s up, ${bareDownRate.toFixed(1)} MB/s down`,
      `up, ${usedNote(up, megabytes, "MB")}`,
      `down, ${usedNote(down, megabytes, "MB")}`,
      `channel alone: up, ${usedNote(bareUp, megabytes, "MB")}; down, ${usedNote(bareDown, megabytes, "MB")}`,
    ],
  };
}

interface Files {
  readonly up: () => Promise<void>;
  readonly down: () => Promise<void>;
}

function filesAbove({ flotilla, id }: Above): Files {
  const { url, headers } = flotilla.access;
  const { authorization = "" } = headers;
  const send = async (method: string, body: boolean): Promise<number> => {
    const sent = httpRequest(`${url}/v1/machines/${id}/files${PATH}`, {
      method,
      headers: { authorization, ...(body ? { "content-length": FILE_BYTES } : {}) },
    });
    const answered = once(sent, "response") as Promise<[Readable & { statusCode?: number }]>;
    if (body) await writeAll(sent);
    else sent.end();
    const [answer] = await answered;
    if ((answer.statusCode ?? 500) >= 300) throw new Error(`${method} was answered with ${answer.statusCode}`);
    return await count(answer);
  };
  return {
    up: async () => void (await send("PUT", true)),
    down: async () => expectBytes(await send("GET", false), FILE_BYTES),
  };
}

function filesBelow(guest: Guest): Files {
  const begin = (operation: GuestFileRequest["operation"]) =>
    guest.file({ operation, path: PATH, offset: 0, length: null, isFromEnd: false });
  return {
    up: async () => {
      const exec = begin("write");
      exec.stdout.resume();
      exec.stderr.resume();
      await writeAll(exec.stdin);
      if ((await exec.exit).exitCode !== 0) throw new Error("the file was not written");
    },
    down: async () => {
      const exec = begin("read");
      exec.stderr.resume();
      const [bytes] = await Promise.all([count(exec.stdout), exec.exit]);
      if (bytes < FILE_BYTES) throw new Error("the file is incomplete");
    },
  };
}

/** Runs a command that writes OUTPUT_BYTES, n times on each side after those that warm up, in turns. */
export async function streamThroughput(n: number): Promise<Finding> {
  const command = ["dd", "if=/dev/zero", "bs=64k", `count=${OUTPUT_BYTES / 65_536}`];
  const [ours, byFetch, bare] = await aboveAndBelow(async (above, below) => {
    const { url, headers } = above.flotilla.access;
    const apiKey = headers["authorization"]?.replace("Bearer ", "");
    const stream = async (client: Flotilla): Promise<void> => {
      let bytes = 0;
      const signal = AbortSignal.timeout(TURN_MS_MAX);
      for await (const event of await client.streamExec(above.id, { command }, { signal }))
        if (event.kind === "stdout") bytes += event.bytes.byteLength;
      expectBytes(bytes, OUTPUT_BYTES);
    };
    const sides = [
      { work: () => stream(new Flotilla({ url, apiKey, fetch: nodeFetch })), pids: above.pids },
      { work: () => stream(new Flotilla({ url, apiKey })), pids: above.pids },
      { work: () => streamBelow(below.guest, command), pids: below.pids },
    ];
    return await takeTurns(sides, { count: n, warmUps: WARM_UP_STREAMS, together: 1 });
  });
  if (!ours || !byFetch || !bare) throw new Error("nothing was measured");
  const [above, fetched, below] = [summarize(ours.tookMs), summarize(byFetch.tookMs), summarize(bare.tookMs)];
  const [rate, bareRate] = [rateOf(OUTPUT_BYTES, above.p50Ms), rateOf(OUTPUT_BYTES, below.p50Ms)];
  const megabytes = (n * OUTPUT_BYTES) / 1e6;
  return {
    name: "stream-throughput",
    series: [
      { what: "64 MiB of output, streamed through the API, with the command line's transport", summary: above },
      { what: "the same with the SDK's own, which is fetch", summary: fetched },
      { what: "64 MiB of output, guest channel alone", summary: below, isBaseline: true },
    ],
    reaches: [atLeast("of the channel alone", rate / bareRate, RATIO_MIN)],
    setting: { image: IMAGE, size: "default", bytes: OUTPUT_BYTES, "streams before": WARM_UP_STREAMS },
    notes: [
      `${rate.toFixed(1)} MB/s, channel alone ${bareRate.toFixed(1)} MB/s`,
      `the first streams took ${millisecondsOf(ours.beforeMs)} ms, on the channel alone ${millisecondsOf(bare.beforeMs)} ms`,
      usedNote(ours, megabytes, "MB"),
      `with fetch, ${usedNote(byFetch, megabytes, "MB")}`,
      `channel alone, ${usedNote(bare, megabytes, "MB")}`,
    ],
  };
}

async function streamBelow(guest: Guest, argv: readonly string[]): Promise<void> {
  const request = { argv, cwd: null, env: {}, user: null, hasStdin: false, terminal: null };
  const exec = guest.exec({ ...request, isBackground: false });
  AbortSignal.timeout(TURN_MS_MAX).addEventListener("abort", () => exec.stdout.destroy(new Error("it stopped")));
  exec.stderr.resume();
  const [bytes] = await Promise.all([count(exec.stdout), exec.exit]);
  expectBytes(bytes, OUTPUT_BYTES);
}

const millisecondsOf = (times: readonly number[]): string => times.map((ms) => ms.toFixed(0)).join(", ");

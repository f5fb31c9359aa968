/**
 * Sends the same request to a server repeatedly on a number of kept-alive connections, with as little work as
 * possible: the processors are shared with what is measured.
 *
 * Always: each connection has one outstanding request; answers have a content-length; an answer other than
 * 200 counts as failed and has no time.
 */
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { monotonic } from "./clock.ts";

export interface Question {
  readonly url: string;
  readonly method: "GET" | "POST";
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

export interface Answered {
  readonly perSecond: number;
  readonly latenciesMs: readonly number[];
  readonly failed: number;
}

const HEAD_END = Buffer.from("\r\n\r\n");

/** Sends requests for the given time. Rejects when a connection ends. */
export async function askFor(
  question: Question,
  { connections, forMs }: { readonly connections: number; readonly forMs: number },
): Promise<Answered> {
  const bytes = bytesOf(question);
  const { hostname, port } = new URL(question.url);
  const sockets = await Promise.all(
    Array.from({ length: connections }, async () => {
      const socket = connect({ host: hostname, port: Number(port), noDelay: true });
      await once(socket, "connect");
      return socket;
    }),
  );
  const startedAt = monotonic();
  const results = await Promise.all(sockets.map((socket) => askOn(socket, bytes, startedAt + forMs)));
  const tookMs = monotonic() - startedAt;
  const latenciesMs = results.flatMap((result) => result.latenciesMs);
  const failed = results.reduce((sum, result) => sum + result.failed, 0);
  return { perSecond: (latenciesMs.length * 1000) / tookMs, latenciesMs, failed };
}

function bytesOf({ url, method, path, headers, body }: Question): Buffer {
  const all = {
    host: new URL(url).host,
    ...headers,
    ...(body === "" ? {} : { "content-length": String(Buffer.byteLength(body)) }),
  };
  const lines = [`${method} ${path} HTTP/1.1`, ...Object.entries(all).map(([name, value]) => `${name}: ${value}`)];
  return Buffer.from(`${lines.join("\r\n")}\r\n\r\n${body}`);
}

function askOn(
  socket: Socket,
  bytes: Buffer,
  endAt: number,
): Promise<{ readonly latenciesMs: number[]; readonly failed: number }> {
  const { promise, resolve, reject } = Promise.withResolvers<{ latenciesMs: number[]; failed: number }>();
  const latenciesMs: number[] = [];
  let failed = 0;
  let received: Buffer = Buffer.alloc(0);
  let askedAt = monotonic();
  socket.on("error", reject);
  socket.on("close", () => reject(new Error("the server closed a connection under load")));
  socket.on("data", (chunk: Buffer) => {
    received = received.length === 0 ? chunk : Buffer.concat([received, chunk]);
    const answer = wholeAnswer(received);
    if (answer === null) return;
    received = received.subarray(answer.length);
    const now = monotonic();
    if (answer.status === 200) latenciesMs.push(now - askedAt);
    else failed += 1;
    if (now >= endAt) {
      resolve({ latenciesMs, failed });
      socket.destroy();
      return;
    }
    askedAt = now;
    socket.write(bytes);
  });
  socket.write(bytes);
  return promise;
}

/** The first answer in the buffer, once it is complete. */
function wholeAnswer(received: Buffer): { readonly status: number; readonly length: number } | null {
  const at = received.indexOf(HEAD_END);
  if (at === -1) return null;
  const head = received.toString("latin1", 0, at);
  const length = /^content-length: *(\d+)/im.exec(head)?.[1];
  if (length === undefined) throw new Error(`an answer without a length: ${head.slice(0, 200)}`);
  const end = at + HEAD_END.length + Number(length);
  return received.length < end ? null : { status: Number(head.slice(9, 12)), length: end };
}

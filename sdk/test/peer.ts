/**
 * A test server at the other end of the connection: it records requests and sends prepared replies.
 *
 * Always: it listens on loopback with a port chosen by the system, and is closed, with all its connections,
 * when its test ends.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";

export interface Arrived {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingMessage["headers"];
  readonly body: Buffer;
}

export type Reply = (arrived: Arrived, answer: ServerResponse) => void;

export interface Peer {
  readonly url: string;
  readonly arrived: Arrived[];
}

/** Answers the n-th request with the n-th reply, and every later one with the last. */
export async function startPeer(t: TestContext, ...replies: Reply[]): Promise<Peer> {
  const arrived: Arrived[] = [];
  const server = createServer((request, answer) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const { method = "", url = "", headers } = request;
      const call: Arrived = { method, url, headers, body: Buffer.concat(chunks) };
      arrived.push(call);
      replies[Math.min(arrived.length, replies.length) - 1]?.(call, answer);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, arrived };
}

export const reply =
  (status: number, body = "", headers: Record<string, string> = {}): Reply =>
  (_arrived, answer) => {
    answer.writeHead(status, headers).end(body);
  };

export const replyJson = (value: unknown, status = 200): Reply =>
  reply(status, JSON.stringify(value), { "content-type": "application/json" });

/**
 * Answers input that never becomes a request: bytes that are not HTTP, a head that is too large or
 * incomplete, an unknown expectation. Each is answered with a request id, and its connection is closed.
 */
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { ErrorCode } from "@flotilla/contract/errors";
import type { Connections } from "./connections.ts";
import type { RequestIds } from "./request-id.ts";

export function answerBrokenRequest(
  error: NodeJS.ErrnoException,
  socket: Socket,
  { connections, requestIds }: { readonly connections: Connections; readonly requestIds: RequestIds },
): void {
  // A connection that sent nothing, or that already has its answer, is closed without one; also one that has
  // a part of an answer.
  const answer = answerOf(socket);
  const hasPart = answer?.headersSent === true && !answer.writableEnded;
  if (error.code === "ECONNRESET" || hasPart || !socket.writable || socket.bytesRead === 0) {
    socket.destroy();
    return;
  }
  const requestId = requestIds(undefined);
  const { status, code } = BROKEN[error.code ?? ""] ?? { status: "400 Bad Request", code: "invalid_request" };
  const text = `the request is not valid HTTP: ${status.slice(4).toLowerCase()}`;
  connections.closeWith(
    socket,
    `HTTP/1.1 ${status}\r\nx-request-id: ${requestId}\r\nx-error-code: ${code}\r\n` +
      `content-type: text/plain; charset=utf-8\r\ncontent-length: ${text.length}\r\nconnection: close\r\n\r\n${text}`,
  );
}

/**
 * The answer to the first request of a connection that has none yet; null: all have theirs. Node keeps no
 * public note of it.
 */
export const answerOf = (socket: Socket & { readonly _httpMessage?: ServerResponse | null }): ServerResponse | null =>
  socket._httpMessage ?? null;

const BROKEN: Readonly<Record<string, { readonly status: string; readonly code: ErrorCode }>> = {
  HPE_HEADER_OVERFLOW: { status: "431 Request Header Fields Too Large", code: "invalid_request" },
  ERR_HTTP_REQUEST_TIMEOUT: { status: "408 Request Timeout", code: "body_too_slow" },
};

/** HTTP defines no expectation but `100-continue`. */
export function handleExpectations(server: Server, requestIds: RequestIds): void {
  server.on("checkExpectation", (message: IncomingMessage, response: ServerResponse) => {
    const text = "unknown expectation; the only one that can be met is 100-continue";
    response.writeHead(417, {
      "x-request-id": requestIds(message.headers["x-request-id"]),
      "x-error-code": "invalid_request",
      "content-type": "text/plain; charset=utf-8",
      "content-length": text.length,
      connection: "close",
    });
    response.end(text);
  });
}
